// SPDX-License-Identifier: Apache-2.0
// Making and changing elements. Text is set as text only, so that no name can become markup, and what has not changed is
// left alone, so that focus, selection and scroll stay.

const SVG = "http://www.w3.org/2000/svg";

/** A new element with these attributes and children; a child that is no node becomes text. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
  return element;
}

/** Set an attribute, or remove it where the value is null. */
export function setAttribute(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/** Set an element's whole text. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show or hide an element. */
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

const nodesOf = new WeakMap();

/**
 * Have a parent hold one node an item, in the items' order. The node of a key stays the same one.
 *
 * Focus stays where it was, also where its node is moved. Where its node goes, focus goes to `otherwise`.
 */
export function keyed(parent, items, { key, create, update, otherwise }) {
  const nodes = nodesOf.get(parent) ?? new Map();
  nodesOf.set(parent, nodes);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const wanted = new Set(items.map(key));
  for (const [known, node] of nodes) {
    if (!wanted.has(known)) {
      node.remove();
      nodes.delete(known);
    }
  }
  let place = null;
  for (const item of items.toReversed()) {
    const name = key(item);
    let node = nodes.get(name);
    if (!node) {
      node = create(item);
      nodes.set(name, node);
    }
    if (node.parentNode !== parent || node.nextSibling !== place) parent.insertBefore(node, place);
    place = node;
    update(node, item);
  }
  if (focused && document.activeElement !== focused) {
    (focused.isConnected ? focused : otherwise)?.focus({ preventScroll: true });
  }
}
