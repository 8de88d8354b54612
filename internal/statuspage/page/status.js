// Updates the page at each server-sent event. Without JavaScript the page reloads every few seconds.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const source = new EventSource("events");

// showConnection says whether the page is up to date.
function showConnection(text, lost) {
  live.hidden = false;
  live.className = lost ? "lost" : "";
  if (live.textContent !== text) live.textContent = text;
}

// update replaces only the parts of the page that changed, so that a reader can select text in the other parts.
function update(html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  const parts = [...next.content.children];
  const current = [...main.children];
  if (parts.length !== current.length) {
    main.replaceChildren(...parts);
  } else {
    parts.forEach((part, i) => part.isEqualNode(current[i]) || current[i].replaceWith(part));
  }
  document.title = main.querySelector("header p").textContent + " – " + main.querySelector("h1").textContent;
}

source.onmessage = (event) => {
  update(event.data);
  showConnection("live", false);
};
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) {
    showConnection("not live: reload the page", true);
  } else {
    showConnection("the candidate cannot be reached; this is its last known state", true);
  }
};
