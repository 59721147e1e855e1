// The confusion matrix: each cell is a link to the cases that have such pixels.
const LISTED = 12;
const MOST_TEXTS = 14; // classes whose cells have room for a number
const SMALL_CELLS = 60; // classes above which a cell needs a stronger colour to be seen

function drawConfusion(place, { classes, matrix, outside, arrays }) {
  const [side, names] = [classes.length, classes.map(isolated)];
  const cases = new Map(Array.from(arrays.cells, (cell, k) => [cell, arrays.cell_cases[k]]));
  const totals = matrix.map((counts, row) => counts.reduce((sum, count) => sum + count, outside[row]));
  const factsOf = (row, column, count) => ({ row, column, count, share: count / (totals[row] || 1), held: cases.get(row * side + column) ?? 0 });
  const cells = matrix.flatMap((counts, row) => counts.map((count, column) => factsOf(row, column, count))).filter(({ count }) => count);
  const wordsOf = ({ row, column, count, share, held }) => `${plural(count, "pixel")}, ${(100 * share).toFixed(2)}\u00a0%${row === column ? "" : `, in ${plural(held, "case")}`}`;
  const linkOf = ({ row, column, held }) => {
    if (row === column) return new State().with({ has: String(row), sort: `iou/${row}` }).link;
    return held ? new State().with({ cell: `${row}.${column}` }).link : null;
  };
  const drawn = (cell) => {
    const { row, column, share } = cell;
    // with a number no more than 80 %, so that it can be read in both colour schemes
    const strength = (side > MOST_TEXTS ? 100 : 80) * Math.max(0.06, share ** (side > SMALL_CELLS ? 0.3 : 0.6));
    const background = `color-mix(in srgb, var(--${row === column ? "accent" : "error"}) ${strength.toFixed(1)}%, var(--track))`;
    const title = `${names[row]} predicted as ${names[column]}: ${wordsOf(cell)}`;
    const text = side <= MOST_TEXTS && share >= 0.005 ? (100 * share).toFixed(0) : "";
    const style = { "grid-area": `${row + 1} / ${column + 1}`, background };
    return el("a", { href: linkOf(cell), title, tabindex: -1, class: strength > 59 ? "strong" : "", style }, text);
  };
  const edge = Math.min(720, side * 64) + (place.querySelector(".down") ? 112 : 0); // pixels, with those of names
  place.style.setProperty("--matrix", `${edge}px`);
  place.style.setProperty("--side", side);
  place.firstElementChild.classList.toggle("dense", side > MOST_TEXTS);
  place.querySelector(".cells").append(...cells.map(drawn));
  // the largest cells as links that need no pointer
  const largest = cells.filter(({ row, column }) => row !== column).sort((a, b) => b.count - a.count).slice(0, LISTED);
  const item = (cell) => [el("a", { href: linkOf(cell) ?? "#cases" }, `${names[cell.row]} → ${names[cell.column]}`), el("span", { class: "minor" }, ` ${wordsOf(cell)}`)];
  place.querySelector("ol").append(...largest.map((cell) => el("li", {}, ...item(cell))));
}
