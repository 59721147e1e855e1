// The page of a comparison: the differences of two runs, case by case.
const CHANGES = ["worse", "better", "unchanged"];
const THRESHOLD = "0.05";

class Difference extends Column {
  show(value) {
    return Number.isNaN(value) ? "n/a" : (value > 0 ? "+" : "") + super.show(value);
  }
}

// where both values are the same, infinite ones included, nothing differs
const minus = (one, other) => (one === other ? 0 : one - other);

// columns of a pair: differences (new minus base), and the values of both
function pairColumns(page, [base, now]) {
  const found = page.columns.filter((column) => !/^\d+\//.test(column.key));
  for (const old of page.columns.filter((column) => column.key.startsWith(`${base}/`))) {
    const key = old.key.slice(`${base}/`.length);
    const other = page.column.get(`${now}/${key}`);
    if (!other) continue;
    const raw = Float64Array.from(old.raw, (_, i) => minus(other.value(i), old.value(i)));
    const top = key === page.sort;
    found.push(new Difference({ ...old, key: `difference/${key}`, label: `difference of ${old.label}`, kind: "number", group: "differences", shown: top }, raw));
    for (const [name, column] of [["base", old], ["new", other]]) {
      const run = page.runs[name === "base" ? base : now];
      found.push(new Column({ ...column, key: `${name}/${key}`, label: `${old.label}, ${run}`, group: run, shown: top }, column.raw));
    }
  }
  return found;
}

// what became of each case from the base to the new run, by one measure; nothing where no direction is known
function changeColumn(column, threshold) {
  const sign = column.better === "lower" ? -1 : 1;
  const raw = Int32Array.from(column.raw, (value) => {
    if (Number.isNaN(value) || !column.better) return -1;
    return sign * value < -threshold ? 0 : sign * value > threshold ? 1 : 2;
  });
  return new Column({ key: "change", label: "change", kind: "choice", group: "differences", unit: "", better: null, of: null, shown: true, names: CHANGES }, raw);
}

class PairView extends CaseView {
  sources(i) {
    return this.page.pair.map((run) => this.page.sources[run].get(i)).filter(Boolean);
  }

  panesOf(i) {
    const found = this.page.pair.map((run) => [this.page.runs[run], this.page.sources[run].get(i)]).filter(([, picture]) => picture);
    if (!found.length) return [];
    const panes = ["image", "target"].map((role) => new Pane(this.page, found[0][1], role));
    for (const role of ["prediction", "errors"]) for (const [run, picture] of found) panes.push(new Pane(this.page, picture, role, { title: `${role}: ${run}` }));
    return panes;
  }

  // the values of both runs and their difference, measure by measure
  known(i) {
    const { page } = this;
    const runs = page.pair.map((run) => page.runs[run]);
    const rows = page.columns.filter((column) => column.key.startsWith("difference/")).map((column) => {
      const key = column.key.slice("difference/".length);
      const values = [page.column.get(`base/${key}`).text(i), page.column.get(`new/${key}`).text(i), column.text(i)];
      return el("tr", {}, el("th", { scope: "row" }, column.title.replace("difference of ", "")), ...values.map((text) => el("td", { class: "n" }, text)));
    });
    const heads = ["measure", `${runs[0]} (base)`, `${runs[1]} (new)`, "new minus base"].map((text, k) => el("th", { scope: "col", class: k ? "n" : "" }, text));
    const facts = page.columns.filter((column) => column.group === "case" && column.key !== "id").map((column) => `${column.title} ${column.text(i)}`);
    const about = el("p", { class: "minor about" }, [page.column.get("change").text(i) || "undefined", ...facts].join(" · "));
    return [about, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "values of both runs" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)))];
  }
}

// pictures of each run, the image and the target of those that share them put back
function sourcesOf(page, layers) {
  const shared = new Map();
  return layers.map((pictures) => {
    const found = picturesOf(page, pictures);
    for (const [i, picture] of found) {
      const base = shared.get(i);
      if (base) found.set(i, { ...picture, files: { ...base.files, ...picture.files }, maps: [...base.maps.filter((map) => map.role === "target"), ...picture.maps] });
      else shared.set(i, picture);
    }
    return found;
  });
}

function pairing(page, state) {
  const options = page.runs.map((name, k) => ({ value: String(k), label: name }));
  const change = (changes) => {
    const next = new State().with({ pair: state.get("pair"), by: state.get("by"), over: state.get("over"), ...changes });
    next.go();
  };
  const pick = (k) => select(k ? "new run" : "base run", options, String(page.pair[k]), (value) => change({ pair: (k ? [page.pair[0], value] : [value, page.pair[1]]).join(".") }));
  const measures = page.columns.filter((column) => column.key.startsWith("difference/"));
  const measure = select("measure that decides", measures.map((column) => ({ value: column.key, label: column.title })), page.sort, (value) => change({ by: value }));
  const decides = page.column.get(page.sort);
  const over = el("input", { class: "end", inputmode: "decimal", "aria-label": "least difference", value: page.threshold });
  over.addEventListener("change", () => change({ over: over.value.trim() }));
  const counts = CHANGES.map((name, k) => [name, page.column.get("change").raw.filter((raw) => raw === k).length]);
  const links = counts.map(([name, count]) => el("a", { class: "chip", href: state.with({ "is.change": name, case: null, sort: name === "better" ? bestFirst(decides) : worstFirst(decides) }).link }, `${name} ${whole(count)}`));
  byId("pairing").replaceChildren(
    el("span", { class: "pair" }, "base ", pick(0), " new ", pick(1), el("button", { type: "button", id: "swap", onclick: () => change({ pair: [...page.pair].reverse().join(".") }) }, "swap")),
    el("span", { class: "pair" }, "by ", measure, " over ", over),
    el("span", { class: "pair" }, ...links),
  );
}

// what the columns of the page follow from
const choiceOf = (state) => ["pair", "by", "over"].map((name) => state.get(name) ?? "").join();

async function startComparison() {
  const page = await readPage();
  const state = State.here();
  const last = page.runs.length - 1;
  const asked = (state.get("pair") ?? "").split(".").map(Number);
  page.pair = asked.length === 2 && asked.every((k) => k >= 0 && k <= last) && asked[0] !== asked[1] ? asked : [0, 1];
  page.sources = sourcesOf(page, JSON.parse(byId("layers").textContent));
  page.pictures = page.sources[page.pair[0]];
  page.columns = pairColumns(page, page.pair);
  const by = page.columns.find((column) => column.key === state.get("by")) ?? page.columns.find((column) => column.key === `difference/${page.sort}`);
  page.sort = by.key;
  page.threshold = Number(state.get("over") || THRESHOLD) || 0;
  page.columns.splice(1, 0, changeColumn(by, page.threshold));
  page.column = new Map(page.columns.map((column) => [column.key, column]));
  pairing(page, state);
  const begun = choiceOf(state);
  addEventListener("hashchange", (event) => {
    if (!location.hash.startsWith(MARK) || choiceOf(State.here()) === begun) return;
    event.stopImmediatePropagation(); // so that the old pair is not shown under the new choice meanwhile
    location.reload();
  });
  new Explorer(page, [], new PairView(page));
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

startComparison().catch((error) => {
  byId("table").textContent = `The cases can't be shown: ${error}`;
  throw error;
});
