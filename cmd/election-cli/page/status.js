// Shows what the server renders as soon as it changes. Without this the page is read again every few seconds.
"use strict";
const live = document.getElementById("live");
const source = new EventSource("events");
source.onmessage = (event) => {
  document.getElementById("main").innerHTML = event.data;
  live.hidden = false;
  live.className = "";
  live.textContent = "live";
};
source.onerror = () => {
  live.hidden = false;
  live.className = "lost";
  live.textContent = "the candidate cannot be reached; this is what it said last";
};
