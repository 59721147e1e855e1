// The small histogram of each class: a bar is a link to the cases with an IoU in its tenth. The class's own link opens
// the large one, whose bars the keyboard reaches.
const TENTH = { width: 8, height: 22, least: 2 }; // pixels of a bar; `least` is the height of the lowest

function tenthsOf(counts, key, name) {
  const { width, height, least } = TENTH;
  const highest = Math.max(...counts);
  const bars = counts.map((count, k) => {
    if (!count) return null;
    const tall = least + ((height - least) * count) / highest;
    const words = `IoU of ${isolated(name)} ${k / 10} to ${(k + 1) / 10}: ${plural(count, "case")}`;
    const bar = [
      svg("title", {}, words),
      svg("rect", { class: "hit", x: k * width, width, y: 0, height }),
      svg("rect", { class: "right", x: k * width + 0.5, width: width - 1, y: (height - tall).toFixed(1), height: tall.toFixed(1) }),
    ];
    if (!key) return svg("g", {}, ...bar);
    const range = `${k / 10}..${k === 9 ? "" : "<"}${(k + 1) / 10}`;
    return svg("a", { href: new State().with({ [`in.${key}`]: range, sort: key, h: key }).link, tabindex: -1, "aria-label": words }, ...bar);
  });
  const [wide, tall] = [10 * width, height + 1];
  const axis = svg("path", { class: "axis", d: `M0 ${height}.5H${wide}` });
  return svg("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, role: "group", "aria-label": `cases by IoU of ${name}` }, ...bars.filter(Boolean), axis);
}

function drawClasses() {
  for (const cell of document.querySelectorAll("td[data-bars]")) {
    const name = cell.parentElement.cells[0].dataset.value;
    cell.replaceChildren(tenthsOf(cell.dataset.bars.split(",").map(Number), cell.dataset.of, name));
  }
}
