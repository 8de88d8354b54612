// Shows what the server renders as soon as it changes. Without this the page is read again every few seconds.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const source = new EventSource("events");

function say(text, lost) {
  live.hidden = false;
  live.className = lost ? "lost" : "";
  if (live.textContent !== text) live.textContent = text;
}

// show puts what is new in the place of what it replaces, and leaves the rest alone: somebody may be selecting text in it.
function show(html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  const pieces = [...next.content.children];
  const present = [...main.children];
  if (pieces.length !== present.length) {
    main.replaceChildren(...pieces);
  } else {
    pieces.forEach((piece, i) => piece.isEqualNode(present[i]) || present[i].replaceWith(piece));
  }
  document.title = main.querySelector("header p").textContent + " – " + main.querySelector("h1").textContent;
}

source.onmessage = (event) => {
  show(event.data);
  say("live", false);
};
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) {
    say("not live: reload to see what is new", true);
  } else {
    say("the candidate cannot be reached; this is what it said last", true);
  }
};
