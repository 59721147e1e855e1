// Tables of the page that are sorted where they stand.
const valueOf = (row, column) => row.cells[column].dataset.value ?? "";

function compare(kind, descending) {
  return ([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = kind === "number" ? a - b : a.localeCompare(b);
    return descending ? -order : order;
  };
}

function sortBy(table, head, column) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [valueOf(row, column), row]);
  keyed.sort(compare(head.dataset.sort, descending));
  body.append(...keyed.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.dataset.sort) return;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, head, column));
    head.replaceChildren(button);
  });
}
