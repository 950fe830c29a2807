// The page of all datasets: opens the history of one, and keeps itself up to date.
"use strict";

const PAUSE_MS = 10000;
const opened = new Set();

function showOpened() {
  for (const button of document.querySelectorAll("[data-history]")) {
    const isOpen = opened.has(button.dataset.history);
    button.setAttribute("aria-expanded", String(isOpen));
    document.getElementById(button.dataset.history).hidden = !isOpen;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-history]");
  if (!button) return;
  const name = button.dataset.history;
  if (!opened.delete(name)) opened.add(name);
  showOpened();
});

async function keepUp() {
  if (!document.hidden) {
    try {
      say(await refresh(location.href, ["datasets"]));
      showOpened();
    } catch {
      say("Airflow does not answer. This page tries again by itself.");
    }
  }
  setTimeout(keepUp, PAUSE_MS);
}

setTimeout(keepUp, PAUSE_MS);
