// Unpacks zlib data (RFC 1950, 1951) synchronously. The browser's `DecompressionStream` is asynchronous: a page
// that is printed right after loading would be empty.

const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]; // RFC 1951, section 3.2.7
const LONGEST = 258; // bytes that one symbol can repeat
const DAMAGED = "the data of this page is damaged";
const LENGTHS = baseValues(29, 3, (code) => (code < 8 ? 0 : (code >> 2) - 1));
const DISTANCES = baseValues(30, 1, (code) => (code < 4 ? 0 : (code >> 1) - 1));

/** @typedef {{ bits: number, entries: Uint16Array }} Codes by the next bits: a symbol times 16, and the length of its code */

/**
 * Returns the first value of each code and its number of extra bits.
 *
 * @param {number} count
 * @param {number} first
 * @param {(code: number) => number} extra
 */
function baseValues(count, first, extra) {
  const bases = [first];
  for (let code = 0; code + 1 < count; code += 1) bases.push(bases[code] + 2 ** extra(code));
  return { bases, extra: bases.map((_, code) => extra(code)) };
}

/**
 * Returns the decoding table for code lengths (RFC 1951, section 3.2.2).
 *
 * @param {number[]} lengths in bits; 0: the symbol does not occur
 * @returns {Codes}
 */
function decodingTable(lengths) {
  const bits = Math.max(...lengths, 1);
  const entries = new Uint16Array(1 << bits);
  let code = 0;
  for (let length = 1; length <= bits; length += 1) {
    lengths.forEach((codeLength, symbol) => {
      if (codeLength !== length) return;
      let reversed = 0;
      for (let bit = 0; bit < length; bit += 1) reversed |= ((code >> bit) & 1) << (length - 1 - bit);
      for (let place = reversed; place < entries.length; place += 1 << length) {
        entries[place] = (symbol << 4) | length;
      }
      code += 1;
    });
    code <<= 1;
  }
  return { bits, entries };
}

/**
 * @param {Uint8Array} input zlib data
 * @param {number} size number of unpacked bytes
 */
export function inflate(input, size) {
  const output = new Uint8Array(size);
  let [place, held, count, end] = [2, 0, 0, 0]; // after the two-byte header

  /** @param {number} wanted */
  const fill = (wanted) => {
    while (count < wanted) {
      if (place > input.length + 4) throw new Error(DAMAGED); // the lookup reads a few bits ahead
      held |= input[place] << count;
      place += 1;
      count += 8;
    }
  };
  /** @param {number} wanted */
  const take = (wanted) => {
    fill(wanted);
    const bits = held & ((1 << wanted) - 1);
    held >>>= wanted;
    count -= wanted;
    return bits;
  };
  /** @param {Codes} codes */
  const symbol = ({ bits, entries }) => {
    fill(bits);
    const entry = entries[held & ((1 << bits) - 1)];
    const length = entry & 15;
    if (!length) throw new Error(DAMAGED);
    held >>>= length;
    count -= length;
    return entry >> 4;
  };
  const dynamic = () => {
    const [literals, distances, lengthCodes] = [take(5) + 257, take(5) + 1, take(4) + 4];
    const lengths = new Array(19).fill(0);
    for (let index = 0; index < lengthCodes; index += 1) lengths[ORDER[index]] = take(3);
    const codes = decodingTable(lengths);
    /** @type {number[]} */
    const all = [];
    while (all.length < literals + distances) {
      const code = symbol(codes);
      if (code < 16) all.push(code);
      else {
        const again = code === 16 ? 3 + take(2) : code === 17 ? 3 + take(3) : 11 + take(7);
        const value = code === 16 ? all[all.length - 1] : 0;
        for (let number = 0; number < again; number += 1) all.push(value);
      }
    }
    return [decodingTable(all.slice(0, literals)), decodingTable(all.slice(literals))];
  };
  const fixed = () => {
    const length = (/** @type {number} */ literal) =>
      literal < 144 ? 8 : literal < 256 ? 9 : literal < 280 ? 7 : 8;
    return [
      decodingTable(Array.from({ length: 288 }, (_, literal) => length(literal))),
      decodingTable(new Array(30).fill(5)),
    ];
  };
  const stored = () => {
    place -= count >> 3; // whole bytes that were read too early
    [held, count] = [0, 0];
    const length = input[place] | (input[place + 1] << 8);
    output.set(input.subarray(place + 4, place + 4 + length), end);
    place += 4 + length;
    end += length;
  };

  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 0) {
      stored();
      continue;
    }
    const [literals, distances] = kind === 1 ? fixed() : dynamic();
    for (let literalCode = symbol(literals); literalCode !== 256; literalCode = symbol(literals)) {
      if (literalCode < 256) {
        output[end] = literalCode;
        end += 1;
        continue;
      }
      const length =
        literalCode === 285 ? LONGEST : LENGTHS.bases[literalCode - 257] + take(LENGTHS.extra[literalCode - 257]);
      const far = symbol(distances);
      const distance = DISTANCES.bases[far] + take(DISTANCES.extra[far]);
      for (let each = 0; each < length; each += 1, end += 1) output[end] = output[end - distance];
    }
  }
  if (end !== size) throw new Error(DAMAGED);
  return output;
}
