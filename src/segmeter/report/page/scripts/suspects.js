// The ids of the cases that the page lists, in the order of the list and each once.
byId("copy").onclick = async () => {
  const ids = new Set([...document.querySelectorAll("[data-case]")].map((row) => row.dataset.case));
  await navigator.clipboard.writeText([...ids].join("\n"));
  byId("copy").textContent = "copied";
};
