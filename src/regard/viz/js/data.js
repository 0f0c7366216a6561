// Types of the view's data, as in `viz/data.py`, which explains the properties. A test compares the two.
// This module contains no code.

/**
 * @typedef {object} PackedWeights
 * @property {string} packed
 * @property {number} largest
 * @property {number} levels
 * @property {number} heads
 * @property {number} side
 */

/**
 * @typedef {object} LayerData
 * @property {string} name
 * @property {string} title
 * @property {"encoder" | "decoder" | "cross"} kind
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {number[][] | null} query_words
 * @property {number[][] | null} key_words
 * @property {PackedWeights | number[][][]} weights
 * @property {number[][] | null} relevant
 * @property {number} square
 * @property {number[] | null} patches
 * @property {boolean} written
 * @property {string[] | null} names
 * @property {Record<string, number[]> | null} measures
 */

/**
 * @typedef {object} LargeData
 * @property {number} step
 * @property {string} key
 * @property {number} weight
 */

/**
 * @typedef {object} RowData
 * @property {string} query
 * @property {number[]} weights
 * @property {LargeData[]} largest
 */

/**
 * @typedef {object} NumbersData
 * @property {string} numbers
 * @property {number[]} shape
 */

/**
 * @typedef {object} StepData
 * @property {string} name
 * @property {"query" | "key" | "pair" | "product"} of
 * @property {NumbersData | null} numbers
 * @property {number[] | null} factors
 */

/**
 * @typedef {object} LayerSumsData
 * @property {StepData[]} steps
 * @property {number} scale
 * @property {NumbersData} scores
 * @property {NumbersData} may_see
 * @property {NumbersData} weights
 * @property {NumbersData} values
 * @property {NumbersData} context
 * @property {NumbersData} added
 * @property {NumbersData | null} own_part
 * @property {NumbersData | null} before_norm
 * @property {NumbersData | null} after_norm
 */

/**
 * @typedef {object} AnswerData
 * @property {string} answer
 * @property {number} probability
 * @property {number[]} state
 * @property {string[]} classes
 * @property {number[]} logits
 * @property {number[]} probabilities
 */

/**
 * @typedef {object} SumsData
 * @property {Record<string, LayerSumsData>} layers
 * @property {AnswerData[]} answers
 */

/**
 * @typedef {object} MapData
 * @property {string} task
 * @property {string} input
 * @property {number[] | string | null} prediction
 * @property {number[] | string | null} truth
 * @property {string[]} outputs
 * @property {number[]} probabilities
 * @property {LayerData[]} layers
 * @property {string | null} opens
 * @property {number | null} head
 * @property {string | null} picture
 * @property {string} note
 * @property {string} model
 * @property {string[]} interventions
 * @property {number[] | string | null} original_prediction
 * @property {SumsData} [sums]
 */

/**
 * @typedef {object} PlaybackData
 * @property {number[]} steps
 * @property {number[][]} losses
 * @property {MapData[]} frames
 */

/**
 * @typedef {object} InterventionData
 * @property {string} layer
 * @property {number[]} heads
 * @property {"off" | "uniform" | number} to
 * @property {number} [query]
 * @property {number} [key]
 */

/**
 * @typedef {object} StrengthData
 * @property {number} mean
 * @property {number} low
 * @property {number} high
 */

/**
 * @typedef {object} RoleData
 * @property {string | null} role
 * @property {StrengthData | null} strength
 * @property {number} untrained
 */

/**
 * @typedef {object} WorthData loss increase when a head is ablated, with its 95 % interval if known
 * @property {number} added
 * @property {number | null} low
 * @property {number | null} high
 */

/**
 * @typedef {object} BesideData
 * @property {string} name
 * @property {MapData} map
 */

/**
 * @typedef {object} ViewData
 * @property {MapData[]} maps
 * @property {MapData} [original]
 * @property {Record<string, WorthData[]>} [importance]
 * @property {Record<string, string[]>} [examined]
 * @property {Record<string, RoleData[]>} [roles]
 * @property {BesideData[]} [beside]
 * @property {PlaybackData} [playback]
 * @property {InterventionData[]} [interventions]
 * @property {boolean} [behind]
 */
