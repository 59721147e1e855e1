// Tables of the page that are sorted where they stand.
const valueOf = (row, column) => row.cells[column].dataset.value ?? "";

const numberOf = (text) => Number(text.replace(/inf$/, "Infinity")); // as Python writes it

// numbers by size, before all texts, as settings hold both
function compare(descending) {
  return ([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [numberOf(a), numberOf(b)];
    const texts = Number.isNaN(x) - Number.isNaN(y);
    const order = texts || (Number.isNaN(x) ? a.localeCompare(b, undefined, { numeric: true }) : (x > y) - (x < y));
    return descending ? -order : order;
  };
}

function sortBy(table, head, column) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [valueOf(row, column), row]);
  keyed.sort(compare(descending));
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
