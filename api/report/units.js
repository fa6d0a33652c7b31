'use strict';

/** Elements are made by these alone: text from a graph is never parsed as HTML. */
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith('on'))
      made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null)
      made.setAttribute(key, value);
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return made;
}

/** Three digits; whole numbers in full. */
function digits(value) { return String(Number(value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2))); }

function bytesText(bytes) {
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = Math.abs(bytes);
  if (value < 1024) return `${bytes} byte${bytes === 1 ? '' : 's'}`;
  let unit = 0;
  for (value /= 1024; value >= 1023.5 && unit + 1 < units.length; value /= 1024) ++unit;
  return `${bytes < 0 ? '\u2212' : ''}${digits(value)} ${units[unit]}`;
}

function timeText(microseconds) {
  return microseconds < 1000 ? `${digits(microseconds)} \u00b5s` : `${digits(microseconds / 1000)} ms`;
}

function shortened(text, most) { return text.length <= most ? text : text.slice(0, most - 1) + '\u2026'; }

/** nn.rms_norm without its dialect */
function opName(op) { return op.startsWith('nn.') ? op.slice(3) : op; }

function sum(values) { return values.reduce((total, value) => total + value, 0); }
