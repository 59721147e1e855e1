// The confusion matrix: each cell off the diagonal is a link to the cases that have such pixels.
const LISTED = 12;
const NARROWEST = 14; // pixels of a column with a name
const LOWEST = 11; // and of a row
const SMALL = 8; // pixels of a cell that needs a stronger colour to be seen
const MOST_NAMES = 60; // classes whose names stand beside the matrix

class Confusion {
  constructor(place, page) {
    this.page = page;
    this.names = page.classes;
    this.side = this.names.length;
    this.totals = page.matrix.map((row, k) => row.reduce((sum, count) => sum + count, page.outside[k]));
    this.cases = new Map(Array.from(page.arrays.cells, (cell, k) => [cell, page.arrays.cell_cases[k]]));
    const widest = Math.min(720, this.side * 64) + (this.side <= MOST_NAMES ? 176 : 16);
    this.canvas = el("canvas", { id: "confusion", role: "img", "aria-label": "confusion matrix, rows are the target; the list beside it holds its largest cells" });
    const node = el("div", { class: "plot", style: { maxWidth: `${widest}px` } }, this.canvas);
    this.tip = new Tip(node);
    place.style.setProperty("--matrix", `${widest}px`);
    place.replaceChildren(node, this.list());
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.tip.show(""));
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cell(event);
      if (cell && this.link(...cell)) goTo(this.link(...cell));
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    isDark.addEventListener("change", () => this.paint());
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

  // the room of names around the cells; where a row or a column is too small for its name, there is none
  margins(width) {
    if (this.side > MOST_NAMES) return [8, 8, 8, 8];
    if (width >= 480 || this.side < 5) return [112, 64, 100, 8];
    if ((width - 132) / this.side >= NARROWEST) return [92, 40, 84, 8];
    return (width - 104) / this.side >= LOWEST ? [92, 12, 8, 8] : [8, 8, 8, 8];
  }

  cell(event) {
    const box = this.canvas.getBoundingClientRect();
    const [row, column] = [event.clientY - box.top - this.top, event.clientX - box.left - this.left].map((place) => Math.floor(place / this.size));
    return Math.min(row, column) >= 0 && Math.max(row, column) < this.side ? [row, column] : null;
  }

  hover(event) {
    const cell = this.cell(event);
    const box = this.canvas.getBoundingClientRect();
    this.tip.show(cell ? this.words(...cell) : "", event.clientX - box.left, event.clientY - box.top);
    this.canvas.style.cursor = cell && this.link(...cell) ? "pointer" : "default";
  }

  paint() {
    const { canvas, names, side } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const [left, right, top, bottom] = this.margins(width);
    const size = (width - left - right) / side;
    Object.assign(this, { left, top, size });
    const height = size * side + top + bottom;
    canvas.style.height = `${height}px`;
    [canvas.width, canvas.height] = [width, height].map((length) => Math.round(length * devicePixelRatio));
    const context = (this.context = canvas.getContext("2d"));
    context.scale(devicePixelRatio, devicePixelRatio);
    Object.assign(context, { font: "12px system-ui, sans-serif", textAlign: "center", fillStyle: colourOf("track") });
    context.fillRect(left, top, size * side, size * side);
    const [gap, strength, colours] = [size > 6 ? 1 : 0, size < SMALL ? 0.3 : 0.6, { sheet: colourOf("sheet"), ink: colourOf("ink"), right: colourOf("accent"), wrong: colourOf("error") }];
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const share = this.share(row, column);
        if (!share) continue;
        Object.assign(context, { globalAlpha: Math.max(0.06, share ** strength), fillStyle: row === column ? colours.right : colours.wrong });
        context.fillRect(left + column * size, top + row * size, size - gap, size - gap);
        context.globalAlpha = 1;
        if (size < 26 || share < 0.005) continue;
        context.fillStyle = share > 0.35 ? colours.sheet : colours.ink;
        context.fillText((100 * share).toFixed(0), left + (column + 0.5) * size, top + (row + 0.5) * size + 4);
      }
    }
    context.fillStyle = colourOf("soft");
    if (left > 8) names.forEach((name, k) => this.name(name, "right", left - 8, left - 6, top + (k + 0.5) * size + 4, 0));
    if (top > 8 && size >= NARROWEST) names.forEach((name, k) => this.name(name, "left", top + 10, left + (k + 0.5) * size + 4, top - 6, -Math.PI / 4));
  }

  name(text, align, room, left, top, angle) {
    const { context } = this;
    let cut = text;
    while (cut.length > 1 && context.measureText(cut).width > room) cut = cut.slice(0, -2) + "…";
    context.save();
    context.textAlign = align;
    context.translate(left, top);
    context.rotate(angle);
    context.fillText(cut, 0, 0);
    context.restore();
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
