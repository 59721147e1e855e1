// The case ids of a decision.
const copyButton = document.getElementById("copy");
copyButton?.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(copyButton.dataset.ids);
    copyButton.textContent = "copied";
  } catch {
    prompt("The browser keeps its clipboard closed. Copy the ids from here:", copyButton.dataset.ids);
  }
});
