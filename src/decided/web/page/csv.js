// Tables as text: read from a file in whatever separator and encoding it has, and written.

const SEPARATORS = [",", ";", "\t", "|"];
const ENCODINGS = { fffe: ["utf-16le", "utf-16"], feff: ["utf-16be", "utf-16"] };

// `{text, encoding}` of the bytes of a file; the encoding by the name that Python has for it.
export function decoded(bytes) {
  const mark = Array.from(bytes.slice(0, 2), (byte) => byte.toString(16)).join("");
  const [label, encoding] = ENCODINGS[mark] ?? ["utf-8", "utf-8-sig"];
  try {
    return { text: new TextDecoder(label, { fatal: true }).decode(bytes), encoding };
  } catch {
    return { text: new TextDecoder("windows-1252").decode(bytes), encoding: "cp1252" };
  }
}

// `{columns, rows, problems, separator}`: the first row has the names; a problem for each row that does not fit them.
export function parsed(text) {
  const separator = separatorOf(text);
  const [head, ...rest] = rowsOf(text, separator).filter(({ cells }) => cells.length > 1 || cells[0] !== "");
  const columns = head?.cells ?? [];
  const problems = rest.map(({ cells, line }) => problemOf(cells, line, columns.length));
  return { columns, rows: rest.map(({ cells }) => cells), problems, separator };
}

// In the words of `decided run`.
function problemOf(cells, line, width) {
  if (cells.length === width) return "";
  const beyond = cells.length > width ? `; without a column: ${JSON.stringify(cells.slice(width))}` : "";
  return `line ${line}: ${cells.length} cells in place of ${width}${beyond}`;
}

// The one that comes most often in the first row, outside quotes.
function separatorOf(text) {
  const [head] = text.replace(/"[^"]*"/g, "").split(/\r?\n/, 1);
  const counts = SEPARATORS.map((sign) => head.split(sign).length);
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

// `{cells, line}` of each row: its last line, for a cell in quotes may have several.
function rowsOf(text, separator) {
  const rows = [];
  let cells = [];
  let line = 1;
  const sign = separator === "|" ? "\\|" : separator;
  // A field in quotes, where two of them stand for one, or anything up to a separator or the end of a line.
  const field = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${sign}\\r\\n]*))(${sign}|\\r\\n|\\n|\\r|$)`, "y");
  while (field.lastIndex < text.length) {
    const found = field.exec(text);
    cells.push(found[1]?.replaceAll('""', '"') ?? found[2]);
    line += found[1]?.match(/\r\n|\n|\r/g)?.length ?? 0;
    if (found[3] === separator && field.lastIndex < text.length) continue;
    if (found[3] === separator) cells.push("");
    rows.push({ cells, line: line++ });
    cells = [];
  }
  return rows;
}

// A cell that begins like a formula would be run by a spreadsheet; after an apostrophe it is a text.
const cell = (value, separator) => {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return safe.includes(separator) || /["\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

export const written = (rows, separator) =>
  rows.map((row) => `${row.map((value) => cell(value, separator)).join(separator)}\r\n`).join("");

// The column that most likely has the texts: the one with the longest.
export function longestColumn({ columns, rows }) {
  const lengths = columns.map((_, at) => rows.slice(0, 100).reduce((sum, row) => sum + (row[at]?.length ?? 0), 0));
  return lengths.indexOf(Math.max(...lengths));
}
