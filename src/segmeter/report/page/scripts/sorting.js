// Sorts tables of the page in place.
const natural = new Intl.Collator(undefined, { numeric: true });

function sortBy(head) {
  const [table, sign] = [head.closest("table"), head.ariaSort === "ascending" ? -1 : 1];
  for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
  head.ariaSort = sign < 0 ? "descending" : "ascending";
  // numbers by size, as Python writes them, then texts, as settings hold both; what is empty comes last either way
  const compare = (...rows) => {
    const [a, b] = rows.map((row) => row.cells[head.cellIndex].dataset.value ?? "");
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [a, b].map((text) => Number(text.replace(/inf$/, "Infinity")));
    const texts = Number.isNaN(x) - Number.isNaN(y);
    return sign * (texts || (Number.isNaN(x) ? natural.compare(a, b) : (x > y) - (x < y)));
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

for (const head of document.querySelectorAll("table.sortable th[data-sort]")) {
  head.replaceChildren(el("button", { onclick: () => sortBy(head) }, head.textContent));
}
