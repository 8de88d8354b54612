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

// received has the parts of the page as they were received: the times in them are rewritten since.
let received = [];

// update replaces only the parts of the page that changed, so that a reader can select text in the other parts.
function update(html) {
  const parts = [...parse(html).children];
  const texts = parts.map((part) => part.outerHTML);
  const current = [...main.children];
  if (parts.length !== current.length) {
    main.replaceChildren(...parts);
  } else {
    parts.forEach((part, i) => texts[i] === received[i] || current[i].replaceWith(part));
  }
  received = texts;
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
    if (old?.dataset.rank === row.dataset.rank) {
      old.replaceWith(row);
      continue;
    }
    old?.remove();
    body.insertBefore(row, [...body.rows].find((other) => follows(other, row)) ?? null);
  }
  finish();
}

// follows reports whether a row of the list comes after another: the rows of the lowest rank are first.
function follows(row, other) {
  const ranks = row.dataset.rank - other.dataset.rank;
  return ranks > 0 || (ranks === 0 && row.dataset.key > other.dataset.key);
}

// ahead is by how much the server's clock is ahead of this one, give or take the time that the page took to come.
const ahead = Date.parse(main.dataset.now) - Date.now();

// ago says how long ago a time was.
function ago(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 10) return "just now";
  if (seconds < 120) return seconds + " s ago";
  if (seconds < 2 * 3600) return Math.floor(seconds / 60) + " min ago";
  if (seconds < 2 * 86400) return Math.floor(seconds / 3600) + " h ago";
  return Math.floor(seconds / 86400) + " d ago";
}

// passTime says of each time how long ago it was, and moves the lines of time.
function passTime() {
  const now = Date.now() + ahead;
  for (const time of main.querySelectorAll("time.ago")) {
    time.title ||= time.textContent; // the exact time
    const text = ago(now - Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
  const table = main.querySelector(".elections");
  if (!table) return;
  const end = Math.floor((now - Date.parse(table.dataset.epoch)) / 1000);
  for (const strip of table.querySelectorAll(".strip")) {
    strip.setAttribute("viewBox", end - 3600 + " 0 3600 40");
    for (const bar of strip.querySelectorAll(".open")) bar.setAttribute("width", Math.max(1, end - bar.getAttribute("x")));
  }
}

// finish completes the page after an update.
function finish() {
  passTime();
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
passTime();
setInterval(passTime, 5000);
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
