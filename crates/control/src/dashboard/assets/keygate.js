// Enhancements of the pages: copy buttons, forms that are sent once, the selection of rows, and dates in the reader's language and time zone. Pages
// work without them.
"use strict";
(() => {
  // Read aloud by screen readers.
  const announcement = document.getElementById("announcement");
  const locale = navigator.language || "en";

  // --- Copy buttons ---

  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };

  // Without permission for the clipboard, tries the old command; the text stays selected in case that fails, too.
  const copy = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      select(element);
      return document.execCommand("copy");
    }
  };

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const element = document.getElementById(button.dataset.copy);
    const label = button.innerHTML;
    let timer;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = (await copy(element)) ? "Copied" : "Press Ctrl+C";
      button.textContent = text;
      announcement.textContent = text;
      clearTimeout(timer);
      timer = setTimeout(() => {
        button.innerHTML = label;
        announcement.textContent = "";
      }, 2500);
    });
  }

  // --- Forms are sent once, also by a double click ---

  // The second request would end the page that shows a new key. A form whose request failed can be sent again after a while.
  addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "true";
    setTimeout(() => delete form.dataset.sent, 5000);
  });

  // --- Selected rows of a list: all at once, and their number read aloud; the style sheet shows it ---

  for (const all of document.querySelectorAll("[data-select]")) {
    const boxes = [...document.querySelectorAll(`input[name="${all.dataset.select}"]`)];
    const update = () => {
      const count = boxes.filter((box) => box.checked).length;
      all.textContent = count === boxes.length ? "None" : "All on this page";
      announcement.textContent = `${count} selected`;
    };
    boxes.forEach((box) => box.addEventListener("change", update));
    all.addEventListener("click", (event) => {
      event.preventDefault();
      const selects = boxes.some((box) => !box.checked);
      boxes.forEach((box) => box.checked = selects);
      update();
    });
  }

  // --- Dates ---

  const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relativeWords = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });
  const relativeNumbers = new Intl.RelativeTimeFormat(locale, { numeric: "always" });
  const formats = {
    exact: new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }),
    day: new Intl.DateTimeFormat(locale, { dateStyle: "medium" }),
    hour: new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" }),
    title: new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" }),
  };

  // A time that was announced as coming is shown as `now` once it is over, not as past.
  const fromNow = (date, coming) => {
    const seconds = (date - Date.now()) / 1000;
    if ((coming && seconds < 0) || Math.abs(seconds) < 5) return relativeWords.format(0, "second");
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    return relativeNumbers.format(Math.trunc(seconds / size), unit);
  };

  const show = (time) => {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime())) return;
    const kind = time.dataset.show;
    const text = formats[kind] ? formats[kind].format(date) : fromNow(date, kind === "coming");
    if (time.textContent !== text) time.textContent = text;
    if (kind !== "exact") time.title = formats.title.format(date);
    time.lang = locale;
  };

  const times = document.querySelectorAll("time[data-show]");
  times.forEach(show);
  setInterval(() => times.forEach((time) => time.dataset.show in formats || show(time)), 15000);

  // --- Menus: closed by Escape and by clicks outside ---

  const menus = document.querySelectorAll("details.orgs, details.menu");
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus) {
      if (!menu.open) continue;
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  addEventListener("click", (event) => {
    for (const menu of menus) if (!menu.contains(event.target)) menu.open = false;
  });
})();
