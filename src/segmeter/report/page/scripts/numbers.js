// Reads the block of data into columns of typed arrays; see segmeter.report.columns for its layout.
const ARRAYS = { int8: Int8Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };
const UNDEFINED_SCORE = 65535;

async function readPage() {
  const letters = atob(byId("data").textContent);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i); // megabytes, and `from` takes ten times as long
  const packed = new Blob([bytes]);
  const buffer = await new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const start = 4 + new DataView(buffer).getUint32(0, true);
  const page = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4)));
  const view = (at) => new ARRAYS[at.type](buffer, start + at.offset, at.length);
  for (const [name, at] of Object.entries(page.arrays)) page.arrays[name] = view(at);
  lay(page, page.columns.map((facts) => new Column(facts, facts.values ?? view(facts))));
  page.ids = page.column.get("id").raw;
  page.place = new Map(page.ids.map((id, i) => [id, i]));
  page.n = page.ids.length;
  return page;
}

function lay(page, columns) {
  const numeric = columns.filter((column) => !column.isText);
  Object.assign(page, { columns, numeric, column: new Map(columns.map((column) => [column.key, column])) });
}

class Column {
  constructor(facts, raw) {
    Object.assign(this, facts, { raw });
    this.title = this.unit ? `${this.label} (${this.unit})` : this.label;
    this.isText = this.kind === "text" || this.kind === "choice";
  }

  // NaN is undefined
  value(i) {
    const raw = this.raw[i];
    if (this.kind === "score") return raw === UNDEFINED_SCORE ? NaN : raw / 10000;
    return raw < 0 && (this.kind === "count" || this.kind === "choice") ? NaN : raw;
  }

  text(i) {
    if (this.kind === "text") return this.raw[i];
    return this.kind === "choice" ? (this.names[this.raw[i]] ?? "") : this.show(this.value(i));
  }

  show(value) {
    if (Number.isNaN(value)) return this.kind === "count" ? "" : "n/a";
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
    if (this.kind === "count") return whole(value);
    if (this.kind === "score" || (Math.abs(value) < 1 && Math.abs(value) >= 0.001)) return value.toFixed(4);
    return value && Math.abs(value) < 0.001 ? value.toExponential(4) : String(Number(value.toPrecision(5)));
  }

  // what cases are sorted by: the value, or of a text its place among all
  get ranks() {
    const places = () => new Map([...new Set(this.raw)].sort(natural.compare).map((text, k) => [text, text === "" ? NaN : k]));
    const placed = (place) => this.raw.map((text) => place.get(text));
    return (this.sorted ??= this.kind === "text" ? placed(places()) : Float64Array.from(this.raw, (_, i) => this.value(i)));
  }

  get ends() {
    return (this.found ??= this.kind === "score" ? [0, 1] : endsOf(this.ranks));
  }
}
