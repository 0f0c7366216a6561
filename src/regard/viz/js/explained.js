// How a weight comes about, as the explorer tells it. There is nothing to run here; the other modules read the type.

/**
 * What is known of a weight, as `regard.interpret.Explanation` has it.
 *
 * @typedef {object} Explained
 * @property {string} query_label
 * @property {string[]} key_labels
 * @property {number} query
 * @property {number} key
 * @property {number} head
 * @property {Record<string, number[]>} steps
 * @property {number} scale
 * @property {number[]} scores
 * @property {boolean[]} may_see
 * @property {number} temperature
 * @property {number[]} weights
 * @property {number[][]} values
 * @property {number[]} context
 * @property {number[]} added
 * @property {number[] | null} own_part
 * @property {number[] | null} before_norm
 * @property {number[] | null} after_norm
 * @property {{ answer: string, probability: number, state: number[], classes: string[], logits: number[], probabilities: number[] } | null} answered
 */
