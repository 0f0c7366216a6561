// Lists of numbers as an address stores them: "1,4".

/** @param {string} text */
export function numbersIn(text) {
  return text.split(",").filter(Boolean).map(Number);
}

/**
 * The list with a number added, or removed if it is present.
 *
 * @param {string} text
 * @param {number} number
 */
export function toggleNumber(text, number) {
  const numbers = numbersIn(text);
  const others = numbers.filter((old) => old !== number);
  return (others.length < numbers.length ? others : [...others, number])
    .sort((first, second) => first - second)
    .join(",");
}
