// Finds which cases a state chooses, and in which order.
const FOUND = { "above 0": (value) => value > 0, undefined: Number.isNaN, failed: (value) => Math.abs(value) === Infinity, defined: (value) => !Number.isNaN(value) };
const MOST_COLUMNS = 12; // of the table, before the reader chooses

// how a state sorts by a column, the worst first or the best
const orderBy = (column, best = false) => ((column.better === "lower") === best ? "" : "-") + column.key;

// the present choice with a case open
const withCase = (page, i) => State.here().with({ case: page.ids[i] });

// "0.5..0.6" includes both ends, "0.5..<0.6" excludes the upper one; either end may be missing
function inRange(text) {
  const [low, high = ""] = text.split("..");
  const number = (part, other) => (part === "" || Number.isNaN(Number(part)) ? other : Number(part));
  const [least, most] = [number(low, -Infinity), number(high.replace("<", ""), Infinity)];
  return (value) => value >= least && (high.startsWith("<") ? value < most : value <= most);
}

class Cases {
  constructor(page) {
    Object.assign(this, { page, folded: page.ids.map((id) => id.toLowerCase()) });
  }

  // a part of a state as a filter: its words, and which cases pass; nothing for other parts
  filter(name, text) {
    const [kind, key] = [name.split(".", 1)[0], name.slice(name.indexOf(".") + 1)];
    if (kind === "q") return text && { words: `name has “${text}”`, passes: (i) => this.folded[i].includes(text.toLowerCase()) };
    if (kind === "wrong") return this.wrong(text);
    if (kind === "cell") return this.cell(text);
    const column = this.page.column.get(kind === "has" ? `status/${text}` : key);
    if (!column) return null;
    if (kind === "has") return { words: `target has ${column.label}`, passes: (i) => ["found", "missed"].includes(column.text(i)) };
    if (kind === "is") return { words: `${column.label}: ${text}`, passes: (i) => column.text(i) === text };
    const passes = { in: inRange(text), un: FOUND[text] }[kind];
    return passes && { words: `${column.title} ${text.replace("..<", " to below ").replace("..", " to ")}`, passes: (i) => passes(column.value(i)) };
  }

  // regions of which only one side has any, as "2.5-6": class 2, or classes 5 and 6 as one
  wrong(text) {
    const regions = text.split(".").map((region) => region.split("-").map((k) => this.page.column.get(`status/${k}`)));
    if (regions.flat().includes(undefined)) return null;
    const has = (region, i, side) => region.some((status) => ["found", side].includes(status.text(i)));
    const one = (region, i) => has(region, i, "missed") !== has(region, i, "false alarm");
    const label = regions.length > 1 ? "some class" : regions[0].map((status) => status.label).join(" or ");
    return { words: `only one side has ${label}`, passes: (i) => regions.some((region) => one(region, i)) };
  }

  // the cases with pixels of one class predicted as another
  cell(text) {
    if (this.lastCell?.text === text) return this.lastCell;
    const { classes, n, arrays } = this.page;
    const [row, predicted] = text.split(".").map(Number);
    const place = predicted < classes.length ? (arrays.cells?.indexOf(row * classes.length + predicted) ?? -1) : -1;
    if (place < 0) return null;
    const start = arrays.cell_kept.subarray(0, place).reduce((sum, count) => sum + count, 0);
    const found = arrays.cell_indices.subarray(start, start + arrays.cell_kept[place]);
    const pixels = new Int32Array(n).fill(-1);
    found.forEach((i, k) => (pixels[i] = arrays.cell_pixels[start + k]));
    const words = `${isolated(classes[row])} predicted as ${isolated(classes[predicted])}`;
    const cut = found.length < arrays.cell_cases[place] ? ` (the ${whole(found.length)} cases with the most, of ${whole(arrays.cell_cases[place])})` : "";
    const column = new Column({ key: "cell", label: `pixels of ${words}`, kind: "count", group: "confusion", unit: "" }, pixels);
    return (this.lastCell = { text, column, words: words + cut, passes: (i) => pixels[i] >= 0 });
  }

  select(state) {
    const { page } = this;
    const filters = [...state].map(([name, value]) => ({ name, value, ...this.filter(name, value) })).filter(({ passes }) => passes);
    // the column that sorts: one more while a cell of the confusion matrix is chosen
    const cell = this.cell(state.get("cell") ?? "");
    const given = state.get("sort") ?? (cell ? "-cell" : orderBy(page.column.get(page.sort)));
    const [, minus, key] = given.match(/^(-?)(.*)$/s);
    const column = (key === "cell" ? cell?.column : page.column.get(key)) ?? page.columns[0];
    const [ranks, sign] = [column.ranks, minus ? -1 : 1];
    const bySize = (one, other) => Number.isNaN(one) - Number.isNaN(other) || sign * ((one > other) - (one < other));
    const chosen = [...page.ids.keys()].filter((i) => filters.every((filter) => filter.passes(i)));
    const order = chosen.sort((a, b) => bySize(ranks[a], ranks[b]));
    // the columns of the table: those that the reader asked for, or the first, and the one that sorts
    const asked = state.getAll("cols").map((key) => page.column.get(key)).filter(Boolean);
    const first = asked.length ? asked : page.columns.filter(({ shown }) => shown).slice(0, MOST_COLUMNS);
    const columns = [...new Set([page.column.get("id"), ...(first.includes(column) ? [] : [column]), ...first])];
    return { page, state, order, filters, column, descending: Boolean(minus), columns };
  }
}
