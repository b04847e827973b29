// What HTML cannot do: check a record while it is typed, and check all boxes of a table.
"use strict";

const CHECK_AFTER_MS = 400;

// Send the form, without its files, to the console's check, and show the result below each part.
async function checkRecord(form) {
  const fields = [...new FormData(form)].filter(([, value]) => typeof value === "string");
  const response = await fetch(form.dataset.checkAt, {
    method: "POST",
    body: new URLSearchParams(fields.filter(([name]) => !name.endsWith("_file"))),
  });
  if (!response.ok) return;
  for (const [part, found] of Object.entries(await response.json())) {
    const place = document.getElementById(`check-${part}`);
    place.textContent = found.text;
    place.className = found.ok ? "dim" : "bad";
  }
}

for (const form of document.querySelectorAll("form[data-check-at]")) {
  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => checkRecord(form).catch(() => {}), CHECK_AFTER_MS);
  };
  form.addEventListener("input", later);
  form.addEventListener("change", later);
}
