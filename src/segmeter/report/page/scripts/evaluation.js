// The page of an evaluation.
async function startEvaluation() {
  const page = await readPage();
  const pictures = JSON.parse(byId("layers").textContent);
  const place = new Map(page.column.get("id").raw.map((id, i) => [id, i]));
  page.pictures = new Map(Object.entries(pictures).map(([id, picture]) => [place.get(id), picture]));
  drawClasses();
  if (byId("matrix")) new Confusion(byId("matrix"), page);
  new Explorer(page);
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

startEvaluation().catch((error) => {
  const old = typeof DecompressionStream === "undefined";
  byId("table").textContent = old ? "This browser can't show the cases: it needs Chrome 80, Firefox 113 or Safari 16.4." : `The cases can't be shown: ${error}`;
  throw error;
});
