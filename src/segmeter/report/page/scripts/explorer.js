// The parts of the page that show cases, redrawn together whenever the choice changes.
class Explorer {
  constructor(page, caseView = new CaseView(page)) {
    Object.assign(this, { caseView, words: "", cases: new Cases(page) });
    this.parts = [new Toolbar(byId("toolbar"), page), new VirtualTable(byId("table"), page), new Gallery(byId("pictures"), page)];
    if (page.numeric.length) this.parts.push(new Histogram(byId("histogram")), new Scatter(byId("plot"), page));
    byId("histogram").parentElement.hidden = !page.numeric.length;
    addEventListener("hashchange", () => this.follow());
    document.addEventListener("click", followLink);
    this.follow();
    if (location.hash && !location.hash.startsWith(MARK)) byId(location.hash.slice(1))?.scrollIntoView(); // what was drawn has moved it
    performance.mark("ready");
    document.documentElement.dataset.ready = "yes";
  }

  // scrolls to the cases when a link elsewhere on the page has changed which ones are chosen
  follow() {
    const state = State.here();
    const key = state.with({ case: null }).link;
    if (key !== this.key) {
      this.chosen = this.cases.select(state);
      for (const part of this.parts) part.show(this.chosen);
      const [before, away] = [this.words, byId("cases").getBoundingClientRect()];
      this.words = this.chosen.filters.map((filter) => filter.words).join();
      if (before !== this.words && (away.top > innerHeight - 200 || away.bottom < 200)) byId("cases").scrollIntoView();
      this.key = key;
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
