// Finds which cases a state chooses, and in which order.
const FOUND = { "above 0": (value) => value > 0, undefined: Number.isNaN, failed: (value) => Math.abs(value) === Infinity, defined: (value) => !Number.isNaN(value) };

const worstFirst = (column) => (column.better === "lower" ? "-" : "") + column.key;
const bestFirst = (column) => (column.better === "lower" ? "" : "-") + column.key;

// "0.5..0.6" includes both ends, "0.5..<0.6" excludes the upper one; either end may be missing
function inRange(text) {
  const [low, high = ""] = text.split("..");
  const number = (part, other) => (part === "" || Number.isNaN(Number(part)) ? other : Number(part));
  const [least, most] = [number(low, -Infinity), number(high.replace("<", ""), Infinity)];
  return (value) => value >= least && (high.startsWith("<") ? value < most : value <= most);
}

class Cases {
  constructor(page) {
    this.page = page;
  }

  // each filter of a state: its words, and which cases pass
  filters(state) {
    return [...state].flatMap(([name, value]) => {
      const dot = name.indexOf(".");
      const column = dot < 0 ? undefined : this.page.column.get(name.slice(dot + 1));
      const filter = column ? this.ofColumn(name.slice(0, dot), column, value) : this.plain(name, value);
      return filter ? [{ name, value, ...filter }] : [];
    });
  }

  ofColumn(kind, column, text) {
    const passes = { in: inRange(text), un: FOUND[text] }[kind];
    if (kind === "is") return { words: `${column.label}: ${text}`, passes: (i) => column.text(i) === text };
    const words = text.replace("..<", " to below ").replace("..", " to ");
    return passes && { words: `${column.title} ${words}`, passes: (i) => passes(column.value(i)) };
  }

  plain(name, value) {
    if (name === "q" && value) {
      this.folded ??= this.page.column.get("id").raw.map((id) => id.toLowerCase());
      return { words: `name has “${value}”`, passes: (i) => this.folded[i].includes(value.toLowerCase()) };
    }
    const status = name === "has" && this.page.column.get(`status/${value}`);
    if (status) return { words: `target has ${status.label}`, passes: (i) => ["found", "missed"].includes(status.text(i)) };
    if (name === "wrong") return this.wrong(value);
    const cell = name === "cell" && this.cell(value);
    return cell && { words: cell.label, passes: (i) => cell.pixels.has(i) };
  }

  // regions of which only one side has any, as "2.5-6": class 2, or classes 5 and 6 as one
  wrong(value) {
    const regions = value.split(".").map((region) => region.split("-").map((k) => this.page.column.get(`status/${k}`)));
    if (regions.flat().includes(undefined)) return null;
    const has = (region, i, side) => region.some((status) => ["found", side].includes(status.text(i)));
    const one = (region, i) => has(region, i, "missed") !== has(region, i, "false alarm");
    const label = regions.length > 1 ? "some class" : regions[0].map((status) => status.label).join(" or ");
    return { words: `only one side has ${label}`, passes: (i) => regions.some((region) => one(region, i)) };
  }

  // the cases with pixels of one class predicted as another
  cell(text) {
    if (this.lastCell?.text === text) return this.lastCell;
    const { cells, cell_cases, cell_kept, cell_indices, cell_pixels } = this.page.arrays;
    const [row, column] = text.split(".").map(Number);
    const [one, other] = [row, column].map((k) => isolated(this.page.classes[k]));
    const place = cells && column < this.page.classes.length ? cells.indexOf(row * this.page.classes.length + column) : -1;
    if (place < 0) return null;
    const start = cell_kept.subarray(0, place).reduce((sum, count) => sum + count, 0);
    const found = cell_indices.subarray(start, start + cell_kept[place]);
    const pixels = new Map(Array.from(found, (i, k) => [i, cell_pixels[start + k]]));
    const cut = found.length < cell_cases[place] ? ` (the ${whole(found.length)} cases with the most, of ${whole(cell_cases[place])})` : "";
    const raw = Int32Array.from({ length: this.page.n }, (_, i) => pixels.get(i) ?? -1);
    const counts = new Column({ key: "cell", label: `pixels of ${one} predicted as ${other}`, kind: "count", group: "confusion", unit: "" }, raw);
    return (this.lastCell = { text, pixels, label: `${one} predicted as ${other}${cut}`, column: counts });
  }

  // the column that sorts: one more while a cell of the confusion matrix is chosen
  sorting(state) {
    const cell = this.cell(state.get("cell") ?? "");
    const given = state.get("sort") ?? (cell ? "-cell" : worstFirst(this.page.column.get(this.page.sort)));
    const descending = given.startsWith("-");
    const key = descending ? given.slice(1) : given;
    return { column: (key === "cell" ? cell?.column : this.page.column.get(key)) ?? this.page.columns[0], descending };
  }

  select(state) {
    const filters = this.filters(state);
    const order = [...this.page.columns[0].raw.keys()].filter((i) => filters.every((filter) => filter.passes(i)));
    const { column, descending } = this.sorting(state);
    const { ranks } = column;
    const sign = descending ? -1 : 1;
    order.sort((a, b) => {
      const [one, other] = [ranks[a], ranks[b]];
      if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other) || a - b;
      return one === other ? a - b : sign * (one < other ? -1 : 1);
    });
    return { order, filters, column, descending };
  }
}
