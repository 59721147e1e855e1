// The case ids of a decision.
const copyButton = document.getElementById("copy");
copyButton?.addEventListener("click", async () => {
  await navigator.clipboard.writeText(copyButton.dataset.ids);
  copyButton.textContent = "copied";
});
