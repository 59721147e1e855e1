// The parts of the page that show cases, redrawn together whenever the choice changes.
const MOST_COLUMNS = 12; // of the table, before the reader chooses

class Explorer {
  constructor(page, views = [], caseView = new CaseView(page)) {
    Object.assign(this, { page, views, caseView });
    this.cases = new Cases(page);
    this.toolbar = new Toolbar(byId("toolbar"), page);
    const linkOf = (i) => State.here().with({ case: page.column.get("id").raw[i] }).link;
    this.table = new VirtualTable(byId("table"), {
      linkOf,
      onSort: (column) => this.sort(column),
      onOpen: (i) => goTo(linkOf(i)),
    });
    const measured = page.columns.some((column) => !column.isText);
    this.parts = measured ? [new Histogram(byId("histogram"), page), new Scatter(byId("plot"), page, linkOf)] : [];
    if (byId("pictures")) this.parts.push(new Gallery(byId("pictures"), page, linkOf));
    addEventListener("hashchange", () => this.follow());
    document.addEventListener("click", followAtOnce);
    // to a section without another address, which holds the choice
    for (const link of document.querySelectorAll("nav a")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        const head = document.querySelector(link.getAttribute("href"));
        head.tabIndex = -1; // so that the keyboard goes on from there
        head.focus({ preventScroll: true });
        head.scrollIntoView();
      });
    }
    this.follow({ first: true });
    if (location.hash && !location.hash.startsWith(MARK)) byId(location.hash.slice(1))?.scrollIntoView(); // what was drawn has moved it
  }

  sort(column) {
    const now = this.cases.sorting(State.here());
    const descending = column === now.column ? !now.descending : column.better === "higher" || column.isText ? false : true;
    State.here().with({ sort: (descending ? "-" : "") + column.key }).go({ replace: true });
  }

  columns(state, sorted) {
    const chosen = state.getAll("cols").map((key) => this.page.column.get(key)).filter(Boolean);
    const first = chosen.length ? chosen : this.page.columns.filter((column) => column.shown).slice(0, MOST_COLUMNS);
    const id = this.page.column.get("id");
    const others = first.filter((column) => column !== id);
    return [id, ...(others.includes(sorted) || sorted === id ? others : [sorted, ...others])];
  }

  // scrolls to the cases when a link elsewhere on the page has changed which ones are chosen
  follow({ first = false } = {}) {
    if (!first && location.hash && !location.hash.startsWith(MARK)) return;
    const state = State.here();
    const key = state.with({ case: null }).link;
    if (key !== this.key) {
      const before = this.chosen && this.words;
      this.chosen = this.cases.select(state);
      this.words = this.chosen.filters.map((filter) => filter.words).join();
      const columns = this.columns(state, this.chosen.column);
      this.toolbar.show(state, this.chosen, columns);
      this.table.show(this.chosen.order, columns, this.chosen.column, this.chosen.descending);
      for (const part of [...this.parts, ...this.views]) part.show(state, this.cases, this.chosen);
      this.key = key;
      const away = byId("cases").getBoundingClientRect();
      if ((first ? this.words : before !== this.words) && (away.top > innerHeight - 200 || away.bottom < 200)) byId("cases").scrollIntoView();
    }
    this.caseView.follow(state, this.chosen.order);
  }
}
