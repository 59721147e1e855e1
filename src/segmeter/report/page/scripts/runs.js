// The index of runs: rows that hold the words that are looked for.
const runRows = [...document.querySelectorAll("table.runs tbody tr")].map((row) => [row, [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent).join(" ").toLowerCase()]);

byId("find").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const [row, text] of runRows) row.hidden = !words.every((word) => text.includes(word));
  byId("count").textContent = `${runRows.filter(([row]) => !row.hidden).length} of ${plural(runRows.length, "run")}`;
});
document.documentElement.dataset.ready = "yes";
