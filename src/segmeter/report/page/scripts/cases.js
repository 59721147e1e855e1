// Columns and a state -> which cases, in which order.
const FOUND = { "above 0": (value) => value > 0, undefined: Number.isNaN, failed: (value) => !Number.isNaN(value) && !Number.isFinite(value), defined: (value) => !Number.isNaN(value) };

// "0.5..0.6" holds both ends, "0.5..<0.6" lacks the upper one; either end may be missing
function parseRange(text) {
  const [low, high] = text.split("..");
  const open = (high ?? "").startsWith("<");
  const number = (part, other) => (part === undefined || part === "" || Number.isNaN(Number(part)) ? other : Number(part));
  return { low: number(low, -Infinity), high: number(open ? high.slice(1) : high, Infinity), open };
}

const worstFirst = (column) => (column.better === "lower" ? "-" : "") + column.key;
const bestFirst = (column) => (column.better === "lower" ? "" : "-") + column.key;

const inRange = ({ low, high, open }) => (value) => value >= low && (open ? value < high : value <= high);

class Cases {
  constructor(page) {
    this.page = page;
    this.folded = null;
  }

  // each filter of a state: its words, and which cases pass
  filters(state) {
    const found = [];
    for (const [name, value] of state) {
      const dot = name.indexOf(".");
      const column = dot < 0 ? undefined : this.page.column.get(name.slice(dot + 1));
      const filter = column ? this.ofColumn(name.slice(0, dot), column, value) : this.plain(name, value);
      if (filter) found.push({ name, value, ...filter });
    }
    return found;
  }

  ofColumn(kind, column, text) {
    if (kind === "in") {
      const passes = inRange(parseRange(text));
      return { words: `${column.title} ${text.replace("..<", " to below ").replace("..", " to ")}`, passes: (i) => passes(column.value(i)) };
    }
    if (kind === "is") {
      const index = column.names?.indexOf(text);
      return { words: `${column.label}: ${text}`, passes: column.kind === "choice" ? (i) => column.raw[i] === index : (i) => column.text(i) === text };
    }
    if (kind === "un" && FOUND[text]) return { words: `${column.title} ${text}`, passes: (i) => FOUND[text](column.value(i)) };
    return null;
  }

  plain(name, value) {
    if (name === "q" && value) {
      const wanted = value.toLowerCase();
      this.folded ??= this.page.column.get("id").raw.map((id) => id.toLowerCase());
      return { words: `name has “${value}”`, passes: (i) => this.folded[i].includes(wanted) };
    }
    const status = name === "has" && this.page.column.get(`status/${value}`);
    if (status) {
      const held = new Set(["found", "missed"].map((word) => status.names.indexOf(word)));
      return { words: `target has ${status.label}`, passes: (i) => held.has(status.raw[i]) };
    }
    if (name === "wrong") return this.wrong(value);
    const cell = name === "cell" && this.cell(value);
    return cell ? { words: cell.label, passes: (i) => cell.pixels.has(i) } : null;
  }

  // regions of which only one side has any, as "2.5-6": class 2, or classes 5 and 6 as one
  wrong(value) {
    const regions = value.split(".").map((region) => region.split("-").map((k) => this.page.column.get(`status/${k}`)));
    if (regions.flat().includes(undefined)) return null;
    const holds = (words) => (status, i) => words.includes(status.names[status.raw[i]]);
    const [targets, predictions] = [holds(["found", "missed"]), holds(["found", "false alarm"])];
    const one = (region, i) => region.some((status) => targets(status, i)) !== region.some((status) => predictions(status, i));
    const label = regions.length > 1 ? "some class" : regions[0].map((status) => status.label).join(" or ");
    return { words: `only one side has ${label}`, passes: (i) => regions.some((region) => one(region, i)) };
  }

  // the cases with pixels of one class predicted as another
  cell(text) {
    if (this.lastCell?.text === text) return this.lastCell;
    const { cells, cell_cases, cell_kept, cell_indices, cell_pixels } = this.page.arrays;
    const names = this.page.classes;
    const [row, column] = text.split(".").map(Number);
    const place = cells ? cells.indexOf(row * names.length + column) : -1;
    if (place < 0 || !(column < names.length)) return null;
    let start = 0;
    for (let i = 0; i < place; i++) start += cell_kept[i];
    const pixels = new Map();
    for (let i = start; i < start + cell_kept[place]; i++) pixels.set(cell_indices[i], cell_pixels[i]);
    const cut = cell_kept[place] < cell_cases[place] ? ` (the ${whole(cell_kept[place])} cases with the most, of ${whole(cell_cases[place])})` : "";
    return (this.lastCell = { text, pixels, label: `${isolated(names[row])} predicted as ${isolated(names[column])}${cut}`, short: `pixels of ${isolated(names[row])} predicted as ${isolated(names[column])}` });
  }

  // the column of a key; one more while a cell of the confusion matrix is chosen
  column(key, state) {
    const cell = key === "cell" && state.get("cell") ? this.cell(state.get("cell")) : null;
    if (!cell) return this.page.column.get(key);
    if (cell.column) return cell.column;
    const raw = new Int32Array(this.page.n).fill(-1);
    for (const [i, count] of cell.pixels) raw[i] = count;
    return (cell.column = new Column({ key, label: cell.short, kind: "count", group: "confusion", unit: "" }, raw));
  }

  sorting(state) {
    const first = this.page.column.get(this.page.sort);
    const given = state.get("sort") ?? (state.get("cell") ? "-cell" : first ? worstFirst(first) : this.page.sort);
    const descending = given.startsWith("-");
    const column = this.column(descending ? given.slice(1) : given, state) ?? this.page.columns[0];
    return { column, descending };
  }

  select(state) {
    const filters = this.filters(state);
    const order = [];
    for (let i = 0; i < this.page.n; i++) if (filters.every((filter) => filter.passes(i))) order.push(i);
    const { column, descending } = this.sorting(state);
    const ranks = column.ranks;
    const sign = descending ? -1 : 1;
    order.sort((a, b) => {
      const [one, other] = [ranks[a], ranks[b]];
      if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other) || a - b;
      return one === other ? a - b : sign * (one < other ? -1 : 1);
    });
    return { order, filters, column, descending };
  }
}
