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
    this.form = el("div", { class: "toolbar" }, this.search, ...this.choices(), this.numeric.length ? this.range() : null);
    const buttons = [
      el("button", { type: "button", id: "copy", onclick: () => this.copyIds() }, "copy ids"),
      el("button", { type: "button", id: "save", onclick: () => save("cases.csv", csvOf(this.columns, this.order)) }, "save CSV"),
      this.chooser,
    ];
    place.replaceChildren(this.form, this.chips, el("div", { class: "taken" }, this.count, ...buttons));
  }

  // cases by columns of few texts: what became of one class, the cluster, a slice
  choices() {
    const [statuses, others] = [true, false].map((status) => this.page.columns.filter((column) => column.kind === "choice" && column.key.startsWith("status/") === status));
    const option = (column) => (word) => ({ value: `is.${column.key}=${word}`, label: word });
    const ofClass = (column) => {
      const options = [{ value: `has=${column.key.slice("status/".length)}`, label: "in the target" }, ...["found", "missed", "false alarm", "absent"].map(option(column))];
      return options.map(({ value, label }) => ({ value, label: `${column.label}: ${label}`, group: column.label }));
    };
    const pickers = others.map((column) => [column.label, column.names.map(option(column))]);
    if (statuses.length) pickers.unshift(["class", statuses.flatMap(ofClass)]);
    this.selects = pickers.map(([label, options]) => {
      const own = new Set(options.map(({ value }) => value));
      const set = (value) => {
        const kept = [...State.here()].filter((pair) => !own.has(pair.join("=")));
        new State(value ? [...kept, [value.slice(0, value.indexOf("=")), value.slice(value.indexOf("=") + 1)]] : kept).go();
      };
      const node = select(label, [{ value: "", label: `any ${label}` }, ...options], "", set);
      return { node, show: (state) => (node.value = [...state].map((pair) => pair.join("=")).find((value) => own.has(value)) ?? "") };
    });
    return this.selects.map(({ node }) => node);
  }

  range() {
    const measure = select("measure", optionsOf(this.numeric), this.page.sort, () => {});
    const [low, high] = ["from", "to"].map((word) => el("input", { type: "text", inputmode: "decimal", placeholder: word, "aria-label": `${word} this value`, class: "end" }));
    const set = () => State.here().with({ [`in.${measure.value}`]: `${low.value.trim()}..${high.value.trim()}` }).go();
    const onkeydown = (event) => event.key === "Enter" && set();
    for (const end of [low, high]) end.addEventListener("keydown", onkeydown);
    return el("span", { class: "pair" }, measure, low, high, el("button", { type: "button", id: "within", onclick: set }, "within"));
  }

  async copyIds() {
    await navigator.clipboard.writeText(this.order.map((i) => this.page.column.get("id").raw[i]).join("\n"));
    say(`${plural(this.order.length, "id")} copied`);
  }

  show(state, { order, filters }, columns) {
    Object.assign(this, { order, columns });
    if (document.activeElement !== this.search) this.search.value = state.get("q") ?? "";
    for (const { show } of this.selects) show(state);
    const chips = filters.map((filter) =>
      el("a", { class: "chip", href: state.without(filter.name, filter.value).link, title: "take this filter away" }, filter.words, el("span", { "aria-hidden": "true" }, " ×")),
    );
    if (filters.length > 1) chips.push(el("a", { class: "chip clear", href: state.with(Object.fromEntries(filters.map(({ name }) => [name, null]))).link }, "clear all"));
    this.chips.replaceChildren(...chips);
    this.count.textContent = filters.length ? `${whole(order.length)} of ${plural(this.page.n, "case")}` : plural(this.page.n, "case");
    this.choose(columns);
  }

  choose(columns) {
    const shown = new Set(columns.map((column) => column.key));
    const box = this.chooser.querySelector(".choices");
    const filled = () => {
      const groups = new Map(this.page.columns.map((column) => [column.group, this.page.columns.filter((other) => other.group === column.group)]));
      box.replaceChildren(...[...groups].map(([group, members]) => el("fieldset", {}, el("legend", {}, group), ...members.map((column) => this.choice(column, shown)))));
    };
    this.chooser.ontoggle = () => this.chooser.open && filled();
    if (this.chooser.open) for (const input of box.querySelectorAll("input")) input.checked = shown.has(input.value);
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
