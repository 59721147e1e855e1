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
  panesOf(i) {
    const found = this.page.pair.map((run) => [this.page.runs[run], this.page.sources[run].get(i)]).filter(([, picture]) => picture);
    if (!found.length) return [];
    const panes = ["image", "target"].map((role) => new Pane(this.palette, found[0][1], role));
    for (const role of ["prediction", "errors"]) for (const [run, picture] of found) panes.push(new Pane(this.palette, picture, role, { title: `${role}: ${run}` }));
    return panes;
  }

  // the values of both runs and their difference, measure by measure
  known(i) {
    const { column, columns, pair, runs } = this.page;
    const rows = columns.filter(({ key }) => key.startsWith("difference/")).map((difference) => {
      const key = difference.key.slice("difference/".length);
      return [difference.title.replace("difference of ", ""), column.get(`base/${key}`).text(i), column.get(`new/${key}`).text(i), difference.text(i)];
    });
    const facts = columns.filter(({ group, key }) => group === "case" && key !== "id").map((fact) => `${fact.title} ${fact.text(i)}`);
    const about = el("p", { class: "minor about" }, [column.get("change").text(i) || "undefined", ...facts].join(" · "));
    return [about, tableOf("values of both runs", ["measure", `${runs[pair[0]]} (base)`, `${runs[pair[1]]} (new)`, "new minus base"], ["", "n", "n", "n"], rows)];
  }
}

// pictures of each run, the image and the target of those that share them put back
function sourcesOf(page, layers) {
  const found = layers.map((pictures) => picturesOf(page, pictures));
  for (const pictures of found) {
    for (const [i, picture] of pictures) {
      const first = found.find((each) => each.has(i)).get(i);
      const targets = picture === first ? [] : first.maps.filter((map) => map.role === "target");
      pictures.set(i, { ...picture, files: { ...first.files, ...picture.files }, maps: [...targets, ...picture.maps] });
    }
  }
  return found;
}

// the choice of two runs, the measure that decides, and the numbers of cases that got better and worse by it
function pairing(page, state) {
  const kept = { pair: state.get("pair"), by: state.get("by"), over: state.get("over") };
  const change = (changes) => new State().with({ ...kept, ...changes }).go();
  const runs = page.runs.map((name, k) => ({ value: String(k), label: name }));
  const pick = (label, k) => select(label, runs, String(page.pair[k]), (run) => change({ pair: page.pair.map((old, j) => (j === k ? run : String(old) === run ? page.pair[k] : old)).join(".") }));
  const measures = page.columns.filter((column) => column.key.startsWith("difference/"));
  const measure = select("measure that decides", optionsOf(measures), page.sort, (value) => change({ by: value }));
  const decides = page.column.get(page.sort);
  const [base, now, by, links] = byId("pairing").querySelectorAll(".pair span, .pair:last-child");
  const over = byId("pairing").querySelector(".end");
  base.append(pick("base run", 0));
  now.append(pick("new run", 1));
  by.append(measure);
  over.value = page.threshold;
  over.addEventListener("change", () => change({ over: over.value.trim() }));
  links.append(...CHANGES.map((name, k) => {
    const sort = name === "better" ? bestFirst(decides) : worstFirst(decides);
    const count = page.column.get("change").raw.filter((raw) => raw === k).length;
    return el("a", { class: "chip", href: state.with({ "is.change": name, case: null, sort }).link }, `${name} ${whole(count)}`);
  }));
}

// what the columns of the page follow from
const choiceOf = (state) => ["pair", "by", "over"].map((name) => state.get(name) ?? "").join();

start((page) => {
  const state = State.here();
  const asked = (state.get("pair") ?? "").split(".").map(Number);
  page.pair = asked.length === 2 && asked.every((k) => k in page.runs) && asked[0] !== asked[1] ? asked : [0, 1];
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
  new Explorer(page, new PairView(page));
});
