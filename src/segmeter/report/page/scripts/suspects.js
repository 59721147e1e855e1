// The ids of the cases that the page lists, in the order of the list and each once.
byId("copy").addEventListener("click", async () => {
  await copyIds([...new Set([...document.querySelectorAll("[data-case]")].map((row) => row.dataset.case))]);
  byId("copy").textContent = "copied";
});
