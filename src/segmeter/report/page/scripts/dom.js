// Elements. Text is always set as text, never as markup, so that no name can become code.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);
const swatchOf = (colour) => el("span", { class: "swatch", style: { background: colour }, "aria-hidden": "true" });
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const whole = (value) => value.toLocaleString("en-US");
const isolated = (name) => `\u2068${name}\u2069`; // its direction of writing changes nothing around it
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

function select(label, options, chosen, onchange) {
  const node = el("select", { "aria-label": label, onchange: () => onchange(node.value) });
  let group = node;
  for (const option of options) {
    if (option.group && option.group !== group.label) node.append((group = el("optgroup", { label: option.group })));
    group.append(el("option", { value: option.value, selected: option.value === chosen }, option.label));
  }
  return node;
}

// a button that stays pressed until it is clicked again
function toggle(words, pressed, ontoggle, more = {}) {
  const onclick = ({ currentTarget: node }) => {
    node.ariaPressed = node.ariaPressed === "false";
    ontoggle(node.ariaPressed === "true");
  };
  return el("button", { type: "button", "aria-pressed": String(pressed), onclick, ...more }, ...words);
}

// a table whose first column names the rows; `kinds` is "n" for each column of numbers
function tableOf(label, heads, kinds, rows) {
  const head = heads.map((text, k) => el("th", { scope: "col", class: kinds[k] }, text));
  const cell = (text, k) => (k ? el("td", { class: kinds[k] }, text) : el("th", { scope: "row" }, text));
  const body = rows.map((row) => el("tr", {}, ...row.map(cell)));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

// into the clipboard, or to be taken from a dialog where the browser keeps that closed
async function copyLines(lines) {
  try {
    await navigator.clipboard.writeText(lines);
  } catch {
    prompt("The browser blocks the clipboard. Copy the ids from here:", lines);
  }
}

for (const button of document.querySelectorAll("[data-ids]")) button.onclick = () => copyLines(button.dataset.ids);

// links to the sections of the page
document.querySelector("nav")?.append(...[...document.querySelectorAll("h2[id]:not(dialog *)")].map(({ id, textContent }) => el("a", { href: `#${id}` }, textContent)));
