// A small, safe part of Markdown: paragraphs, headings, lists, tables, code, bold, emphasis, links and citations. It builds nodes, never HTML.

import { h, outside } from "./dom.js";

const INLINE = /(`[^`\n]+`)|\*\*([^*\n]+)\*\*|(?<![\w*])[*_]([^*_\n]+)[*_](?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)|\[(\d{1,2}(?:\s*[,–-]\s*\d{1,2})*)\]/g;

/** The nodes of a line. `cite(label)` makes what stands for a citation such as "1" or "2-4". */
function inline(text, cite) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    const [whole, code, bold, emphasis, label, url, citation] = found;
    if (code) nodes.push(h("code", {}, code.slice(1, -1)));
    else if (bold) nodes.push(h("strong", {}, inline(bold, cite)));
    else if (emphasis) nodes.push(h("em", {}, inline(emphasis, cite)));
    else if (url) nodes.push(outside(url, label));
    else nodes.push(citation ? cite(citation, whole) : whole);
  }
  nodes.push(text.slice(end));
  return nodes;
}

const BLOCKS = [
  // [what a first line looks like, how far it reaches, what it becomes]
  [/^```/, (lines) => {
    const close = lines.findIndex((line, i) => i > 0 && /^```/.test(line));
    return close < 0 ? lines.length : close + 1;
  }, (lines) => h("pre", { tabindex: "0" }, h("code", {}, lines.slice(1).filter((line) => !/^```/.test(line)).join("\n")))],
  [/^#{1,6} /, () => 1, ([line], cite) => h("h3", {}, inline(line.replace(/^#+ /, ""), cite))],
  [/^\s*[-*] /, run(/^\s*[-*] |^\s{2,}\S/), (lines, cite) => h("ul", {}, items(lines, /^\s*[-*] /, cite))],
  [/^\s*\d+[.)] /, run(/^\s*\d+[.)] |^\s{2,}\S/), (lines, cite) =>
    h("ol", { start: /\d+/.exec(lines[0])[0] }, items(lines, /^\s*\d+[.)] /, cite))],
  [/^\|.*\|\s*$/, run(/^\|.*\|\s*$/), (lines, cite) => table(lines, cite)],
  [/^> ?/, run(/^> ?/), (lines, cite) => h("blockquote", {}, inline(lines.map((l) => l.replace(/^> ?/, "")).join(" "), cite))],
];

function run(pattern) {
  return (lines) => {
    const stop = lines.findIndex((line, i) => i > 0 && !pattern.test(line));
    return stop < 0 ? lines.length : stop;
  };
}

function items(lines, mark, cite) {
  const texts = [];
  for (const line of lines) {
    if (mark.test(line)) texts.push(line.replace(mark, ""));
    else texts[texts.length - 1] += " " + line.trim();
  }
  return texts.map((text) => h("li", {}, inline(text, cite)));
}

function table(lines, cite) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => cell.trim());
  const rows = lines.filter((line) => !/^\|[\s:|-]+\|\s*$/.test(line)).map(cells);
  const [head, ...body] = rows;
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell, cite))))),
    h("tbody", {}, body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell, cite))))))));
}

/** The nodes of a text. */
export function markdown(text, cite = (label, whole) => whole) {
  const nodes = [];
  let lines = text.split("\n");
  while (lines.length) {
    if (!lines[0].trim()) {
      lines = lines.slice(1);
      continue;
    }
    const block = BLOCKS.find(([first]) => first.test(lines[0]));
    const special = (line) => !line.trim() || BLOCKS.some(([first]) => first.test(line));
    const plain = lines.findIndex((line, i) => i > 0 && special(line));
    const length = block ? block[1](lines) : plain < 0 ? lines.length : plain;
    const part = lines.slice(0, length);
    nodes.push(block ? block[2](part, cite) : h("p", {}, paragraph(part, cite)));
    lines = lines.slice(length);
  }
  return nodes;
}

function paragraph(lines, cite) {
  return lines.flatMap((line, i) => (i ? [h("br"), ...inline(line, cite)] : inline(line, cite)));
}
