"""One short sentence with different last words, so that prompts differ in one token.

The words are everyday English, each one token with its space in front in the vocabularies of Pythia, Phi-2 and
Mistral. All last tokens follow the same tokens at one position, so that keys before rotary embedding at layer 0 depend
on the token alone.
"""

from collections.abc import Sequence

import numpy as np

from interp.prompt import Prompt, PromptSet
from interp.table import LABEL

PREFIX = "The next word on the page is"

WORDS = {
    "animals": "dog cat horse bird fish cow pig sheep lion bear wolf deer mouse rat snake duck chicken ant dragon "
    "insect worm crow hen bull cattle beast ox dove pup creature",
    "body": "head hand arm leg foot eye ear nose mouth tooth lip neck shoulder chest heart brain skin bone blood hair "
    "finger knee tongue face stomach muscle throat belly wrist chin thumb jaw",
    "food": "bread milk egg rice meat cheese butter salt sugar honey apple orange lemon cake soup wine beer tea coffee "
    "corn wheat chocolate pie fruit flour pepper salad sauce breakfast bean pizza sandwich",
    "tools": "knife hammer rope chain wheel clock pen brush needle pipe lamp key lock box bag bottle cup plate chair "
    "mirror camera engine gun sword shield ladder bucket basket candle spoon fork wire",
    "colours": "red blue green yellow black white brown pink purple gray grey golden silver bronze olive navy pale "
    "bright dark faded shiny vivid dull transparent",
    "places": "house school church hospital hotel bank shop market factory office station airport bridge road city "
    "town village farm garden forest mountain river lake ocean island beach desert valley castle prison library museum",
    "people": "man woman boy girl child father mother brother sister son daughter uncle aunt king queen prince doctor "
    "teacher student lawyer soldier farmer driver artist writer singer actor priest neighbor engineer poet captain",
    "verbs": "walk sit eat sleep speak listen write sing play build break close push pull throw bring carry keep send "
    "sell teach learn think believe remember forget begin grow climb swim choose win",
    "numbers": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "eighteen twenty thirty forty fifty sixty seventy hundred thousand million billion dozen zero half double twice",
    "function": "the a and of to in that it was for on with as by from this but not or be which they because although "
    "between through during without until than if while",
}
"""Words by category, all different."""


def vocabulary(n_pool: int | None = None, seed: int = 0) -> PromptSet:
    """One prompt per word, with the columns `word` and `category`; a smaller pool keeps the shares of categories."""
    prompts = [
        Prompt(text=f"{PREFIX} {word}", columns={"word": word, "category": category})
        for category, words in WORDS.items()
        for word in words.split()
    ]
    whole = PromptSet(
        name="vocabulary",
        prompts=prompts,
        units={"word": LABEL, "category": LABEL},
        source=f"{len(prompts)} common words in {len(WORDS)} categories, each after {PREFIX!r}",
        cluster="none",
    )
    categories = [str(p.columns["category"]) for p in prompts]
    how = ", categories in proportion"
    return whole.draw(n_pool, seed, how, lambda n: in_proportion(categories, n, np.random.default_rng(seed)))


def in_proportion(labels: Sequence[str], n: int, rng: np.random.Generator) -> np.ndarray:
    """Indices, ascending, of `n` items in which every label keeps its share, give or take one.

    The items of a label are shuffled and placed evenly between 0 and 1, and the `n` lowest are taken: a smaller draw is
    part of a larger one of the same seed.
    """
    names, label = np.unique(labels, return_inverse=True)
    place = np.empty(len(label))
    for i in range(len(names)):
        mine = rng.permutation(np.flatnonzero(label == i))
        place[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    ties = rng.permutation(len(names))[label]
    return np.sort(np.lexsort((ties, place))[:n])
