// Sort the table of a class by a column: the first click puts the smallest first, the next click the largest.

const rows = /** @type {HTMLTableSectionElement} */ (document.querySelector("#class tbody"));
for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#class thead button"))) {
  const head = /** @type {HTMLTableCellElement} */ (button.parentElement);
  button.addEventListener("click", () => {
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of document.querySelectorAll("#class thead th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    /** @param {HTMLTableRowElement} row */
    const key = (row) => row.cells[head.cellIndex].dataset.key ?? "";
    const numbers = head.cellIndex > 0;
    const sorted = [...rows.rows].sort((one, other) => {
      const order = numbers ? Number(key(one)) - Number(key(other)) : key(one).localeCompare(key(other));
      return direction * order;
    });
    rows.append(...sorted);
  });
}
