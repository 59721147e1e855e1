// The page of a comparison: the differences of two runs, case by case.
const CHANGES = ["worse", "better", "unchanged"];
const OF = "difference/"; // begins the keys of differences

class Difference extends Column {
  show(value) {
    return Number.isNaN(value) ? "n/a" : (value > 0 ? "+" : "") + super.show(value);
  }
}

// where both values are the same, infinite ones included, nothing differs
const minus = (one, other) => (one === other ? 0 : one - other);

// columns of a pair: differences (new minus base), and the values of both
function pairColumns({ columns, column, runs, sort }, [base, now]) {
  const found = columns.filter(({ key }) => !/^\d+\//.test(key));
  for (const old of columns.filter(({ key }) => key.startsWith(`${base}/`))) {
    const key = old.key.slice(`${base}/`.length);
    const other = column.get(`${now}/${key}`);
    if (!other) continue;
    const shown = key === sort;
    const raw = Float64Array.from(old.raw, (_, i) => minus(other.value(i), old.value(i)));
    found.push(new Difference({ ...old, key: OF + key, label: `difference of ${old.label}`, kind: "number", group: "differences", shown }, raw));
    for (const [name, each, run] of [["base", old, runs[base]], ["new", other, runs[now]]]) {
      found.push(new Column({ ...each, key: `${name}/${key}`, label: `${old.label}, ${run}`, group: run, shown }, each.raw));
    }
  }
  return found;
}

// what became of each case from the base to the new run, by one measure; nothing where no direction is known
function changeColumn({ raw, better }, threshold) {
  const sign = better === "lower" ? -1 : 1;
  const changeOf = (value) => (Number.isNaN(value) || !better ? -1 : sign * value < -threshold ? 0 : sign * value > threshold ? 1 : 2);
  const facts = { key: "change", label: "change", kind: "choice", group: "differences", unit: "", better: null, of: null, shown: true, names: CHANGES };
  return new Column(facts, Int32Array.from(raw, changeOf));
}

class PairView extends CaseView {
  panesOf(i) {
    const found = this.page.pair.map((run) => [this.page.runs[run], this.page.sources[run].get(i)]).filter(([, picture]) => picture);
    const common = found.length ? ["image", "target"].map((role) => new Pane(this.palette, found[0][1], role)) : [];
    const own = (role) => found.map(([run, picture]) => new Pane(this.palette, picture, role, { title: `${role}: ${run}` }));
    return [...common, ...["prediction", "errors"].flatMap(own)];
  }

  // the values of both runs and their difference, measure by measure
  known(i) {
    const { column, columns, pair, runs } = this.page;
    const rows = columns.filter(({ key }) => key.startsWith(OF)).map((difference) => {
      const key = difference.key.slice(OF.length);
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
  const change = (changes) => choiceOf(state).with(changes).go();
  const runs = page.runs.map((name, k) => ({ value: String(k), label: name }));
  // a run that is chosen twice changes places with the other one
  const paired = (k, run) => page.pair.map((old, j) => (j === k ? run : String(old) === run ? page.pair[k] : old)).join(".");
  const pick = (label, k) => select(label, runs, String(page.pair[k]), (run) => change({ pair: paired(k, run) }));
  const measures = optionsOf(page.columns.filter(({ key }) => key.startsWith(OF)));
  const decides = page.column.get(page.sort);
  const [base, now, by, links] = byId("pairing").querySelectorAll(".pair span, .pair:last-child");
  const over = byId("pairing").querySelector(".end");
  base.append(pick("base run", 0));
  now.append(pick("new run", 1));
  by.append(select("measure that decides", measures, page.sort, (value) => change({ by: value })));
  over.value = page.threshold;
  over.onchange = () => change({ over: over.value.trim() });
  links.append(...CHANGES.map((name, k) => {
    const sort = orderBy(decides, name === "better");
    const count = page.column.get("change").raw.filter((raw) => raw === k).length;
    return el("a", { class: "chip", href: state.with({ "is.change": name, case: null, sort }).link }, `${name} ${whole(count)}`);
  }));
}

// what the columns of the page follow from
const choiceOf = (state) => new State().with(Object.fromEntries(["pair", "by", "over"].map((name) => [name, state.get(name)])));

start((page) => {
  const state = State.here();
  const asked = (state.get("pair") ?? "").split(".").map(Number);
  page.pair = asked.length === 2 && asked.every((k) => k in page.runs) && asked[0] !== asked[1] ? asked : [0, 1];
  page.sources = sourcesOf(page, JSON.parse(byId("layers").textContent));
  page.pictures = page.sources[page.pair[0]];
  const [first, ...rest] = pairColumns(page, page.pair);
  const by = rest.find(({ key }) => key === state.get("by")) ?? rest.find(({ key }) => key === OF + page.sort);
  Object.assign(page, { sort: by.key, threshold: Number(state.get("over") || "0.05") || 0 });
  lay(page, [first, changeColumn(by, page.threshold), ...rest]);
  pairing(page, state);
  const begun = choiceOf(state).link;
  addEventListener("hashchange", (event) => {
    if (!location.hash.startsWith(MARK) || choiceOf(State.here()).link === begun) return;
    event.stopImmediatePropagation(); // so that the old pair is not shown under the new choice meanwhile
    location.reload();
  });
  new Explorer(page, new PairView(page));
});
