// The confusion matrix: each cell is a link to the cases that have such pixels.
const LISTED = 12;
const MOST_NAMES = 60; // classes whose names stand beside the matrix
const MOST_TEXTS = 14; // classes whose cells have room for a number
const SMALL_CELLS = 60; // classes above which a cell needs a stronger colour to be seen

class Confusion {
  constructor(place, page) {
    const side = page.classes.length;
    Object.assign(this, { page, side, names: page.classes });
    this.totals = page.matrix.map((row, k) => row.reduce((sum, count) => sum + count, page.outside[k]));
    this.cases = new Map(Array.from(page.arrays.cells, (cell, k) => [cell, page.arrays.cell_cases[k]]));
    const widest = `${Math.min(720, side * 64) + (side <= MOST_NAMES ? 112 : 0)}px`;
    const cells = page.matrix.flatMap((row, i) => row.map((count, j) => (count ? this.cell(i, j) : null)));
    const names = (kind) => el("div", { class: kind }, ...this.names.map((name) => el("span", {}, name)));
    const grid = el("div", { class: "cells", style: { gridTemplate: `repeat(${side}, minmax(0, 1fr)) / repeat(${side}, minmax(0, 1fr))` } }, ...cells);
    const parts = side <= MOST_NAMES ? [names("across"), names("down"), grid] : [grid];
    place.style.setProperty("--matrix", widest);
    place.replaceChildren(el("div", { id: "confusion", class: side > MOST_TEXTS ? "dense" : "", style: { maxWidth: widest }, "aria-hidden": "true" }, ...parts), this.list());
  }

  share(row, column) {
    return this.totals[row] ? this.page.matrix[row][column] / this.totals[row] : 0;
  }

  held(row, column) {
    return this.cases.get(row * this.side + column) ?? 0;
  }

  link(row, column) {
    if (row === column) return new State().with({ has: String(row), sort: `iou/${row}` }).link;
    return this.held(row, column) ? new State().with({ cell: `${row}.${column}` }).link : null;
  }

  words(row, column) {
    const cases = row === column ? "" : `, in ${plural(this.held(row, column), "case")}`;
    return `${isolated(this.names[row])} predicted as ${isolated(this.names[column])}: ${plural(this.page.matrix[row][column], "pixel")}, ${(100 * this.share(row, column)).toFixed(2)}\u00a0%${cases}`;
  }

  cell(row, column) {
    const share = this.share(row, column);
    // with a number no more than 80 %, so that it can be read in both colour schemes
    const strength = (this.side > MOST_TEXTS ? 100 : 80) * Math.max(0.06, share ** (this.side > SMALL_CELLS ? 0.3 : 0.6));
    const style = { gridArea: `${row + 1} / ${column + 1}`, background: `color-mix(in srgb, var(--${row === column ? "accent" : "error"}) ${strength.toFixed(1)}%, var(--track))` };
    const text = this.side <= MOST_TEXTS && share >= 0.005 ? (100 * share).toFixed(0) : "";
    return el("a", { href: this.link(row, column), title: this.words(row, column), tabindex: -1, class: strength > 59 ? "strong" : "", style }, text);
  }

  // the largest cells as links that need no pointer
  list() {
    const cells = [];
    this.page.matrix.forEach((row, i) => row.forEach((count, j) => i !== j && count && cells.push([count, i, j])));
    cells.sort(([a], [b]) => b - a);
    const items = cells.slice(0, LISTED).map(([count, i, j]) =>
      el("li", {}, el("a", { href: this.link(i, j) ?? "#cases" }, `${isolated(this.names[i])} → ${isolated(this.names[j])}`), el("span", { class: "minor" }, ` ${whole(count)} pixels, ${(100 * this.share(i, j)).toFixed(2)}\u00a0%, ${plural(this.held(i, j), "case")}`)),
    );
    return el("div", { class: "largest" }, el("h3", {}, "largest confusions"), el("ol", {}, ...items));
  }
}
