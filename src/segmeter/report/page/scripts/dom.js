// Elements. Text is always set as text, never as markup, so that no name can become code.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const swatchOf = (colour) => svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2, fill: colour }));
const byId = (id) => document.getElementById(id);
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const rgb = (colour) => `rgb(${colour.join(",")})`;
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

function say(text) {
  const place = byId("said");
  if (place) place.textContent = text;
}
