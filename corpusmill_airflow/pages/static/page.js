// What both pages share: Airflow's light or dark, links that leave the frame, times in the reader's own zone.
"use strict";

// The frame has Airflow's origin, so that it can see which theme the page around it shows.
function followTheme() {
  if (window.parent === window) return;
  const outer = window.parent.document.documentElement;
  const apply = () => {
    document.documentElement.style.colorScheme = outer.classList.contains("dark") ? "dark" : "light";
  };
  new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class", "style"] });
  apply();
}

// A sandboxed frame may not navigate the page around it; a link of that page may.
function goOutside(address) {
  const page = window.parent.document;
  const link = page.createElement("a");
  link.href = address;
  page.body.append(link);
  link.click();
  link.remove();
}

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = time.dateTime;
    time.textContent = moments.format(new Date(time.dateTime));
  }
}

// Fetches a page and puts those of its elements that have these ids in the place of ours; what the server said if it refused.
async function refresh(address, ids) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) return page.querySelector(".note")?.textContent.trim() ?? `Airflow answered ${answer.status}`;
  for (const id of ids) {
    const made = page.getElementById(id);
    if (made) document.getElementById(id)?.replaceWith(document.adoptNode(made));
  }
  localTimes(document);
  return "";
}

function say(text) {
  let line = document.getElementById("trouble");
  if (!line && text) {
    line = document.createElement("div");
    line.id = "trouble";
    line.className = "notice warn";
    document.querySelector("main").prepend(line);
  }
  if (line) line.textContent = text;
  if (line) line.hidden = !text;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-outside]");
  if (!link || event.ctrlKey || event.metaKey || window.parent === window) return;
  event.preventDefault();
  goOutside(link.href);
});

followTheme();
localTimes(document);
