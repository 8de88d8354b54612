// Updates the page at each server-sent event. Without JavaScript the page reloads every few seconds.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const source = new EventSource("events" + location.search);

// showConnection says whether the page is up to date.
function showConnection(text, lost) {
  live.hidden = false;
  live.className = lost ? "lost" : "";
  if (live.textContent !== text) live.textContent = text;
}

// parse returns the elements of a message.
function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// update replaces only the parts of the page that changed, so that a reader can select text in the other parts.
function update(html) {
  const parts = [...parse(html).children];
  const current = [...main.children];
  if (parts.length !== current.length) {
    main.replaceChildren(...parts);
  } else {
    parts.forEach((part, i) => part.isEqualNode(current[i]) || current[i].replaceWith(part));
  }
  finish();
}

// updateRows replaces the header and the given rows of the list of elections, and adds rows where they belong.
function updateRows(html) {
  const next = parse(html);
  main.querySelector("header").replaceWith(next.querySelector("header"));
  const body = main.querySelector(".elections tbody");
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  for (const row of next.querySelectorAll("tr")) {
    const old = rows.get(row.dataset.key);
    if (old) {
      old.replaceWith(row);
    } else {
      body.insertBefore(row, [...body.rows].find((other) => other.dataset.key > row.dataset.key) ?? null);
    }
  }
  finish();
}

// finish completes the page after an update.
function finish() {
  document.title = main.querySelector("header p").textContent + " – " + main.dataset.title;
  filter();
}

// filter hides the elections that do not have the text that the reader looks for.
function filter() {
  const input = main.querySelector(".filter input");
  if (!input) return;
  const text = input.value.trim().toLowerCase();
  for (const row of main.querySelectorAll(".elections tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(text);
  }
}

main.addEventListener("input", filter);
source.onmessage = (event) => {
  update(event.data);
  showConnection("live", false);
};
source.addEventListener("rows", (event) => {
  updateRows(event.data);
  showConnection("live", false);
});
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) {
    showConnection("not live: reload the page", true);
  } else {
    showConnection("the page cannot be reached; this is its last known state", true);
  }
};
