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
    this.totals = page.matrix.map((row, k) => row.reduce((sum, count) => sum + count, page.outside[k]));
    this.cases = new Map(Array.from(page.arrays.cells, (cell, k) => [cell, page.arrays.cell_cases[k]]));
    const side = this.names.length;
    const named = side <= MOST_NAMES;
    const margin = (width) => {
      if (!named) return { left: 8, right: 8, top: 8, bottom: 8 };
      if (width >= 480 || side < 5) return { left: 112, right: 64, top: 100, bottom: 8 };
      if ((width - 132) / side >= NARROWEST) return { left: 92, right: 40, top: 84, bottom: 8 };
      const lowest = (width - 104) / side >= LOWEST;
      return { left: lowest ? 92 : 8, right: lowest ? 12 : 8, top: 8, bottom: 8 };
    };
    const widest = Math.min(720, side * 64) + (named ? 176 : 16);
    const height = (width) => {
      const { left, right, top, bottom } = margin(Math.min(width, widest));
      return Math.min(width, widest) - left - right + top + bottom; // of square cells
    };
    this.plot = new Plot("confusion matrix, rows are the target; the list beside it holds its largest cells", () => this.paint(), { height, margin });
    this.plot.canvas.id = "confusion";
    this.plot.node.style.maxWidth = `${widest}px`;
    place.style.setProperty("--matrix", `${widest}px`);
    place.replaceChildren(this.plot.node, this.list());
    this.plot.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.canvas.addEventListener("pointerleave", (event) => this.plot.point(event, ""));
    this.plot.canvas.addEventListener("click", (event) => {
      const cell = this.cell(event);
      if (cell && this.link(...cell)) goTo(this.link(...cell));
    });
  }

  share(row, column) {
    return this.totals[row] ? this.page.matrix[row][column] / this.totals[row] : 0;
  }

  link(row, column) {
    if (row === column) return new State().with({ has: String(row), sort: `iou/${row}` }).link;
    return this.cases.has(row * this.names.length + column) ? new State().with({ cell: `${row}.${column}` }).link : null;
  }

  words(row, column) {
    const count = this.page.matrix[row][column];
    const cases = row === column ? "" : `, in ${plural(this.cases.get(row * this.names.length + column) ?? 0, "case")}`;
    return `${isolated(this.names[row])} predicted as ${isolated(this.names[column])}: ${plural(count, "pixel")}, ${(100 * this.share(row, column)).toFixed(2)}\u00a0%${cases}`;
  }

  cell(event) {
    const side = this.names.length;
    const [x, y] = this.plot.at(event);
    const [row, column] = [Math.floor((1 - y) * side), Math.floor(x * side)];
    return row >= 0 && row < side && column >= 0 && column < side ? [row, column] : null;
  }

  hover(event) {
    const cell = this.cell(event);
    this.plot.point(event, cell ? this.words(...cell) : "");
    this.plot.canvas.style.cursor = cell && this.link(...cell) ? "pointer" : "default";
  }

  paint() {
    const { plot, names } = this;
    const { context } = plot;
    const side = names.length;
    const [wide, tall] = [plot.width / side, plot.height / side];
    const gap = Math.min(wide, tall) > 6 ? 1 : 0;
    context.fillStyle = colourOf("track");
    context.fillRect(plot.x(0), plot.y(1), plot.width, plot.height);
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const share = this.share(row, column);
        if (!share) continue;
        const [left, top] = [plot.x(column / side), plot.y(1 - row / side)];
        context.globalAlpha = Math.max(0.06, share ** (Math.min(wide, tall) < SMALL ? 0.3 : 0.6));
        context.fillStyle = colourOf(row === column ? "accent" : "error");
        context.fillRect(left, top, wide - gap, tall - gap);
        context.globalAlpha = 1;
        if (wide < 26 || tall < 14 || share < 0.005) continue;
        context.fillStyle = share > 0.35 ? colourOf("sheet") : colourOf("ink");
        context.textAlign = "center";
        context.fillText((100 * share).toFixed(0), left + wide / 2, top + tall / 2 + 4);
      }
    }
    if (tall < LOWEST || names.length > MOST_NAMES) return;
    context.fillStyle = colourOf("soft");
    names.forEach((name, k) => {
      context.textAlign = "right";
      context.fillText(plot.fitted(name, plot.margin.left - 8), plot.x(0) - 6, plot.y(1 - (k + 0.5) / side) + 4);
      if (wide < NARROWEST) return;
      context.save();
      context.translate(plot.x((k + 0.5) / side) + 4, plot.y(1) - 6);
      context.rotate(-Math.PI / 4);
      context.textAlign = "left";
      context.fillText(plot.fitted(name, plot.margin.top + 10), 0, 0);
      context.restore();
    });
  }

  // the largest cells as links that need no pointer
  list() {
    const cells = [];
    this.page.matrix.forEach((row, i) => row.forEach((count, j) => i !== j && count && cells.push([count, i, j])));
    cells.sort(([a], [b]) => b - a);
    const items = cells.slice(0, LISTED).map(([count, i, j]) =>
      el("li", {}, el("a", { href: this.link(i, j) ?? "#cases" }, `${isolated(this.names[i])} → ${isolated(this.names[j])}`), el("span", { class: "minor" }, ` ${whole(count)} pixels, ${(100 * this.share(i, j)).toFixed(2)}\u00a0%, ${plural(this.cases.get(i * this.names.length + j) ?? 0, "case")}`)),
    );
    return el("div", { class: "largest" }, el("h3", {}, "largest confusions"), el("ol", {}, ...items));
  }
}
