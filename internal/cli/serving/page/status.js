// Updates the page at each server-sent event. Without JavaScript the page reloads every few seconds.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const source = new EventSource("events" + location.search);

// showState says that the page is live, unless what the server sends is not the present state.
function showState() {
  const stale = main.querySelector("header.stale") !== null;
  showConnection(stale ? "not up to date" : "live", stale);
}

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

// fresh is whether the next message is the first one of a connection: that has the whole page.
let fresh = true;

// update replaces those parts of the page that a message has, so that a reader can select text in the other parts.
function update(html) {
  const message = parse(html);
  for (const part of [...message.children]) {
    if (part.id) document.getElementById(part.id).replaceWith(part);
  }
  const body = main.querySelector(".elections tbody");
  if (body && fresh) body.replaceChildren();
  if (body) updateRows(body, message.querySelectorAll("tr"));
  fresh = false;
  finish();
}

// updateRows replaces the given rows of the list, which are in order, removes those that are empty, and adds rows where they belong.
function updateRows(body, changed) {
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  for (const row of changed) rows.get(row.dataset.key)?.remove();
  let next = body.rows[0];
  for (const row of changed) {
    if (row.cells.length === 0) continue;
    while (next && !follows(next, row)) next = next.nextElementSibling;
    body.insertBefore(row, next ?? null);
  }
}

// follows reports whether a row of the list comes after another.
function follows(row, other) {
  const [a, b] = [row.dataset, other.dataset];
  return a.order > b.order || (a.order === b.order && a.key > b.key);
}

// ahead is by how much the server's clock is ahead of this one, give or take the time that the page took to come.
const ahead = Date.parse(main.dataset.now) - Date.now();

// duration says in words how many seconds have passed.
function duration(seconds) {
  if (seconds < 120) return seconds + " s";
  if (seconds < 2 * 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 2 * 86400) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

// passTime says of each time how long ago it was, or for how long something has lasted since, and moves the lines of time.
function passTime() {
  const now = Date.now() + ahead;
  for (const time of main.querySelectorAll("time.ago, time.for")) {
    time.title ||= time.textContent; // the exact time
    const seconds = Math.max(0, Math.round((now - Date.parse(time.dateTime)) / 1000));
    const ago = seconds < 10 ? "just now" : duration(seconds) + " ago";
    const text = time.className === "for" ? "for " + duration(seconds) : ago;
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
source.onopen = () => {
  fresh = true;
};
source.onmessage = (event) => {
  update(event.data);
  showState();
};
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) {
    showConnection("not live: reload the page", true);
  } else {
    showConnection("the page cannot be reached; this is its last known state", true);
  }
};
