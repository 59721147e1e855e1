// The confusion matrix: each cell is a link to the cases that have such pixels.
const LISTED = 12;
const MOST_TEXTS = 14; // classes whose cells have room for a number
const SMALL_CELLS = 60; // classes above which a cell needs a stronger colour to be seen

class Confusion {
  constructor(place, { classes: names, matrix, outside, arrays }) {
    const totals = matrix.map((row, k) => row.reduce((sum, count) => sum + count, outside[k]));
    const cases = new Map(Array.from(arrays.cells, (cell, k) => [cell, arrays.cell_cases[k]]));
    const found = matrix.flatMap((row, i) => row.map((count, j) => ({ count, row: i, column: j, share: count / (totals[i] || 1), held: cases.get(i * names.length + j) ?? 0 })));
    Object.assign(this, { names, side: names.length });
    this.cells = found.filter(({ count }) => count);
    this.grid(place);
    place.querySelector("ol").append(...this.list());
  }

  link({ row, column, held }) {
    if (row === column) return new State().with({ has: String(row), sort: `iou/${row}` }).link;
    return held ? new State().with({ cell: `${row}.${column}` }).link : null;
  }

  facts({ count, row, column, share, held }) {
    return `${plural(count, "pixel")}, ${(100 * share).toFixed(2)}\u00a0%${row === column ? "" : `, in ${plural(held, "case")}`}`;
  }

  grid(place) {
    const { side } = this;
    const names = place.querySelector(".down") ? 112 : 0; // pixels
    place.style.setProperty("--matrix", `${Math.min(720, side * 64) + names}px`);
    place.style.setProperty("--side", side);
    place.firstElementChild.classList.toggle("dense", side > MOST_TEXTS);
    place.querySelector(".cells").append(...this.cells.map((cell) => this.cell(cell)));
  }

  cell(cell) {
    const { row, column, share } = cell;
    // with a number no more than 80 %, so that it can be read in both colour schemes
    const strength = (this.side > MOST_TEXTS ? 100 : 80) * Math.max(0.06, share ** (this.side > SMALL_CELLS ? 0.3 : 0.6));
    const background = `color-mix(in srgb, var(--${row === column ? "accent" : "error"}) ${strength.toFixed(1)}%, var(--track))`;
    const title = `${isolated(this.names[row])} predicted as ${isolated(this.names[column])}: ${this.facts(cell)}`;
    const style = { "grid-area": `${row + 1} / ${column + 1}`, background };
    const text = this.side <= MOST_TEXTS && share >= 0.005 ? (100 * share).toFixed(0) : "";
    return el("a", { href: this.link(cell), title, tabindex: -1, class: strength > 59 ? "strong" : "", style }, text);
  }

  // the largest cells as links that need no pointer
  list() {
    const largest = this.cells.filter(({ row, column }) => row !== column).sort((a, b) => b.count - a.count).slice(0, LISTED);
    const words = ({ row, column }) => `${isolated(this.names[row])} → ${isolated(this.names[column])}`;
    return largest.map((cell) => el("li", {}, el("a", { href: this.link(cell) ?? "#cases" }, words(cell)), el("span", { class: "minor" }, ` ${this.facts(cell)}`)));
  }
}
