// Above the table: the filters as a form and as chips, the columns, and what can be taken away.
function csvCell(value) {
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value; // no text is a formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const plainNumber = (column, i) => (Number.isNaN(column.value(i)) ? "" : column.show(column.value(i)).replaceAll(",", ""));

function csvOf(columns, order) {
  const lines = [columns.map((column) => csvCell(column.title)).join(",")];
  for (const i of order) lines.push(columns.map((column) => csvCell(column.isText ? column.text(i) : plainNumber(column, i))).join(","));
  return lines.join("\n") + "\n";
}

function save(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { "aria-hidden": "true" }, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const optionsOf = (columns) => columns.map((column) => ({ value: column.key, label: column.title, group: column.group }));

class Toolbar {
  constructor(place, page) {
    this.page = page;
    this.numeric = page.columns.filter((column) => !column.isText);
    this.search = el("input", { type: "search", id: "find", placeholder: "find a case", "aria-label": "find a case", autocomplete: "off" });
    this.search.addEventListener("input", () => State.here().with({ q: this.search.value || null }).go({ replace: true }));
    this.chips = el("div", { class: "chips" });
    this.count = el("p", { class: "count", role: "status", id: "count" });
    this.chooser = el("details", { class: "chooser" }, el("summary", {}, "columns"), el("div", { class: "choices" }));
    this.form = el("div", { class: "toolbar" }, this.search, this.classes(), ...this.choices(), this.numeric.length ? this.range() : null);
    const buttons = [
      el("button", { type: "button", id: "copy", onclick: () => this.copyIds() }, "copy ids"),
      el("button", { type: "button", id: "save", onclick: () => save("cases.csv", csvOf(this.columns, this.order)) }, "save CSV"),
      this.chooser,
    ];
    place.replaceChildren(this.form, this.chips, el("div", { class: "taken" }, this.count, ...buttons));
  }

  // cases by what became of one class
  classes() {
    const statuses = this.page.columns.filter((column) => column.key.startsWith("status/"));
    if (!statuses.length) return null;
    const options = [{ value: "", label: "any class" }, ...statuses.map((column) => ({ value: column.key, label: column.label }))];
    const words = ["in the target", "found", "missed", "false alarm", "absent"];
    const set = () => {
      const word = status.value;
      status.disabled = !chosen.value;
      const state = this.cleared(State.here(), (name) => name === "has" || name.startsWith("is.status/"));
      if (!chosen.value) return state.go();
      const name = word === words[0] ? "has" : `is.${chosen.value}`;
      state.with({ [name]: word === words[0] ? chosen.value.slice("status/".length) : word }).go();
    };
    const chosen = select("class", options, "", set);
    const status = select("what became of the class", words.map((word) => ({ value: word, label: word })), words[0], set);
    status.disabled = true;
    this.reflect = (state) => {
      const [name, value] = state.entries().find(([key]) => key === "has" || key.startsWith("is.status/")) ?? ["", ""];
      chosen.value = name === "has" ? `status/${value}` : name.slice("is.".length);
      status.value = name && name !== "has" ? value : words[0];
      status.disabled = !chosen.value;
    };
    return el("span", { class: "pair" }, chosen, status);
  }

  // cases by the other columns of few texts, such as the cluster
  choices() {
    const columns = this.page.columns.filter((column) => column.kind === "choice" && !column.key.startsWith("status/"));
    this.selects = [];
    return columns.map((column) => {
      const options = [{ value: "", label: `any ${column.label}` }, ...column.names.map((name) => ({ value: name, label: name }))];
      const node = select(column.label, options, "", (value) => State.here().with({ [`is.${column.key}`]: value || null }).go());
      this.selects.push([`is.${column.key}`, node]);
      return node;
    });
  }

  range() {
    const measure = select("measure", optionsOf(this.numeric), this.page.sort, () => {});
    const [low, high] = ["from", "to"].map((word) => el("input", { type: "text", inputmode: "decimal", placeholder: word, "aria-label": `${word} this value`, class: "end" }));
    const set = () => State.here().with({ [`in.${measure.value}`]: `${low.value.trim()}..${high.value.trim()}` }).go();
    const onkeydown = (event) => event.key === "Enter" && set();
    for (const end of [low, high]) end.addEventListener("keydown", onkeydown);
    return el("span", { class: "pair" }, measure, low, high, el("button", { type: "button", id: "within", onclick: set }, "within"));
  }

  cleared(state, matches) {
    return state.with(Object.fromEntries(state.entries().filter(([name]) => matches(name)).map(([name]) => [name, null])));
  }

  async copyIds() {
    await copy(this.order.map((i) => this.page.column.get("id").raw[i]).join("\n"));
    say(`${plural(this.order.length, "id")} copied`);
  }

  show(state, { order, filters }, columns) {
    Object.assign(this, { order, columns });
    if (document.activeElement !== this.search) this.search.value = state.get("q") ?? "";
    this.reflect?.(state);
    for (const [name, node] of this.selects) node.value = state.get(name) ?? "";
    const chips = filters.map((filter) =>
      el("a", { class: "chip", href: state.without(filter.name, filter.value).link, title: "take this filter away" }, filter.words, el("span", { "aria-hidden": "true" }, " ×")),
    );
    if (filters.length > 1) chips.push(el("a", { class: "chip clear", href: this.cleared(state, (name) => filters.some((filter) => filter.name === name)).link }, "clear all"));
    this.chips.replaceChildren(...chips);
    this.count.textContent = filters.length ? `${whole(order.length)} of ${plural(this.page.n, "case")}` : plural(this.page.n, "case");
    this.choose(columns);
  }

  choose(columns) {
    const shown = new Set(columns.map((column) => column.key));
    const box = this.chooser.querySelector(".choices");
    const filled = () => {
      const groups = Map.groupBy ? Map.groupBy(this.page.columns, (column) => column.group) : this.grouped();
      box.replaceChildren(...[...groups].map(([group, members]) => el("fieldset", {}, el("legend", {}, group), ...members.map((column) => this.choice(column, shown)))));
    };
    this.chooser.ontoggle = () => this.chooser.open && filled();
    if (this.chooser.open) for (const input of box.querySelectorAll("input")) input.checked = shown.has(input.value);
  }

  grouped() {
    const groups = new Map();
    for (const column of this.page.columns) groups.set(column.group, [...(groups.get(column.group) ?? []), column]);
    return groups;
  }

  choice(column, shown) {
    const box = el("input", { type: "checkbox", value: column.key, checked: shown.has(column.key), disabled: column.key === "id" });
    box.addEventListener("change", () => {
      const checked = new Set([...this.chooser.querySelectorAll("input:checked")].map((input) => input.value));
      State.here().with({ cols: this.page.columns.map((each) => each.key).filter((key) => checked.has(key)) }).go({ replace: true });
    });
    return el("label", {}, box, column.title);
  }
}
