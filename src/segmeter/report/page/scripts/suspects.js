// The ids of the cases that the page lists, in the order of the list and each once.
async function copyIds() {
  const ids = [...new Set([...document.querySelectorAll("[data-case]")].map((row) => row.dataset.case))].join("\n");
  try {
    await navigator.clipboard.writeText(ids);
  } catch {
    const area = el("textarea", { "aria-hidden": "true" }, ids);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  byId("copy").textContent = "copied";
}

byId("copy").addEventListener("click", copyIds);
