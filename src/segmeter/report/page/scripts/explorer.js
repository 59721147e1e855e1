// The parts of the page that show cases, redrawn together whenever the choice changes.
const MOST_COLUMNS = 12; // of the table, before the reader chooses

class Explorer {
  constructor(page, caseView = new CaseView(page)) {
    Object.assign(this, { page, caseView, words: "", cases: new Cases(page), toolbar: new Toolbar(byId("toolbar"), page) });
    const of = (i) => State.here().with({ case: page.ids[i] });
    const [linkOf, open] = [(i) => of(i).link, (i) => of(i).go()];
    this.table = new VirtualTable(byId("table"), { linkOf, onSort: (column) => this.sort(column), onOpen: open });
    const measured = page.columns.some((column) => !column.isText);
    byId("histogram").parentElement.hidden = !measured;
    this.parts = measured ? [new Histogram(byId("histogram"), page), new Scatter(byId("plot"), page, open)] : [];
    this.parts.push(new Gallery(byId("pictures"), page, linkOf));
    addEventListener("hashchange", () => this.follow());
    document.addEventListener("click", followLink);
    this.follow({ first: true });
    if (location.hash && !location.hash.startsWith(MARK)) byId(location.hash.slice(1))?.scrollIntoView(); // what was drawn has moved it
    performance.mark("ready");
    document.documentElement.dataset.ready = "yes";
  }

  sort(column) {
    const now = this.cases.sorting(State.here());
    const descending = column === now.column ? !now.descending : column.better !== "higher" && !column.isText;
    State.here().with({ sort: (descending ? "-" : "") + column.key }).go({ replace: true });
  }

  columns(state, sorted) {
    const { column, columns } = this.page;
    const asked = state.getAll("cols").map((key) => column.get(key)).filter(Boolean);
    const first = asked.length ? asked : columns.filter(({ shown }) => shown).slice(0, MOST_COLUMNS);
    return [...new Set([column.get("id"), ...(first.includes(sorted) ? [] : [sorted]), ...first])];
  }

  // scrolls to the cases when a link elsewhere on the page has changed which ones are chosen
  follow({ first = false } = {}) {
    if (!first && location.hash && !location.hash.startsWith(MARK)) return;
    const state = State.here();
    const key = state.with({ case: null }).link;
    if (key !== this.key) {
      const { order, filters, column, descending } = (this.chosen = this.cases.select(state));
      const [before, columns] = [this.words, this.columns(state, column)];
      this.words = filters.map((filter) => filter.words).join();
      this.toolbar.show(state, this.chosen, columns);
      this.table.show(order, columns, column, descending);
      for (const part of this.parts) part.show(state, order);
      this.key = key;
      const away = byId("cases").getBoundingClientRect();
      if (before !== this.words && (away.top > innerHeight - 200 || away.bottom < 200)) byId("cases").scrollIntoView();
    }
    this.caseView.follow(state, this.chosen.order);
  }
}

// reads the page's cases, and says why where that fails
function start(show) {
  readPage().then(show).catch((error) => {
    const old = typeof DecompressionStream === "undefined";
    byId("table").textContent = old ? "This browser can't show the cases: it needs Chrome 111, Firefox 121 or Safari 16.4." : `The cases can't be shown: ${error}`;
    throw error;
  });
}
