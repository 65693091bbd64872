"""Conversations that two people might have had, with questions about them: made of a seed, so the same for everybody.

A conversation is months of short sessions. Each session has a few exchanges about something that happened and small talk
around them. A question asks for one thing that was said, mostly in other words than it was said in; the turn that has the
answer is its evidence. The same kinds of things happen again with other people, places and things, so that words of the
subject alone do not tell which turn is meant.
"""

import random

NAMES = ["Maya", "Tom", "Ines", "Jonas", "Priya", "Carlos", "Edith", "Samir", "Lena", "Oskar", "Fatou", "Neil", "Ruth",
         "Pavel", "Aiko", "Bram", "Clara", "Diego", "Elif", "Finn", "Greta", "Hugo", "Iris", "Kofi"]

POOLS = {
    "kin": ["my sister", "my brother", "my aunt", "my cousin", "my grandmother", "my uncle", "my niece", "my father-in-law",
            "my neighbour", "an old classmate", "a colleague", "my godfather"],
    "city": ["Porto", "Ghent", "Tallinn", "Lyon", "Kraków", "Seville", "Bergen", "Trieste", "Basel", "Galway", "Turku",
             "Bologna", "Utrecht", "Riga", "Split", "Cork", "Leipzig", "Verona", "Malmö", "Zadar"],
    "pet": ["a greyhound", "two guinea pigs", "a tortoise", "a parrot", "a tabby cat", "a beagle puppy", "a hedgehog",
            "three hens", "a ferret", "a rabbit"],
    "petname": ["Biscuit", "Mango", "Pepper", "Waffle", "Olive", "Ziggy", "Pickle", "Juno", "Nacho", "Clover"],
    "craft": ["pottery", "weaving", "woodcarving", "calligraphy", "basketry", "glassblowing", "bookbinding", "embroidery",
              "blacksmithing", "printmaking"],
    "made": ["a crooked bowl", "a blue scarf", "a small owl", "a birthday card", "a bread basket", "a green vase",
             "a notebook", "a cushion cover", "a coat hook", "a poster of a whale"],
    "dish": ["lasagne", "goulash", "paella", "ramen", "moussaka", "pierogi", "biryani", "risotto", "borscht", "tagine",
             "gnocchi", "ratatouille"],
    "instrument": ["the cello", "the accordion", "the ukulele", "the oboe", "the drums", "the banjo", "the harp",
                   "the trombone", "the piano", "the flute"],
    "book": ["a novel about lighthouse keepers", "a biography of a mountaineer", "a thriller set on a ferry",
             "poems about rivers", "a history of salt", "a comic about bees", "an essay on silence",
             "a crime story from Naples", "a guide to mushrooms", "memoirs of a conductor"],
    "sport": ["rowing", "fencing", "climbing", "badminton", "archery", "judo", "cross-country skiing", "handball",
              "orienteering", "water polo"],
    "hurt": ["my ankle", "my left wrist", "my shoulder", "two fingers", "my knee", "my collarbone", "my lower back",
             "a rib", "my big toe", "my elbow"],
    "job": ["a bakery", "the tram company", "a law firm", "the botanical garden", "a radio station", "an insurance office",
            "the harbour authority", "a bicycle shop", "the city archive", "a dental practice", "a film studio",
            "a furniture maker"],
    "fault": ["the boiler", "the dishwasher", "the front door lock", "the roof gutter", "the kitchen tap", "the heating",
              "the garage door", "the washing machine", "the doorbell", "the cellar light"],
    "cost": ["ninety euros", "two hundred and ten euros", "forty euros", "nearly a thousand", "a hundred and sixty",
             "twenty-five euros", "three hundred and eighty", "seventy-four euros", "about five hundred", "one fifty"],
    "plant": ["tomatoes", "a fig tree", "lavender", "runner beans", "sunflowers", "a lemon tree", "rhubarb", "tulips",
              "strawberries", "pumpkins"],
    "pest": ["slugs", "aphids", "a late frost", "the neighbour's goat", "pigeons", "mildew", "deer", "the drought",
             "hailstones", "moles"],
    "course": ["Portuguese", "first aid", "statistics", "sign language", "welding", "Arabic", "beekeeping", "accounting",
               "Polish", "sailing"],
    "weekday": ["Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sunday mornings"],
    "film": ["the one about the tunnel", "that animated one with the foxes", "the documentary on glaciers",
             "the silent one with the clown", "the long one about the trial", "the musical in the lift",
             "the western with the twins", "the one set in a submarine"],
    "verdict": ["cried at the end", "fell asleep halfway", "want to see it again", "left before it ended",
                "laughed the whole time", "could not follow the plot"],
    "allergy": ["hazelnuts", "shellfish", "penicillin", "birch pollen", "wasps", "lactose", "latex", "strawberries",
                "cat hair", "sesame"],
    "vehicle": ["a second-hand van", "a cargo bike", "an electric scooter", "a red hatchback", "a camper",
                "an old motorcycle", "a folding bike", "a small sailing boat"],
    "colour": ["mint green", "mustard", "dark blue", "terracotta", "pale pink", "charcoal", "lilac", "cream"],
    "room": ["the hallway", "the bedroom", "the study", "the bathroom", "the kitchen", "the nursery", "the attic",
             "the porch"],
    "gift": ["a telescope", "a fountain pen", "a chess set", "hiking boots", "a record player", "a wool blanket",
             "a coffee grinder", "a jigsaw of the Alps", "opera tickets", "a pocket knife"],
    "month": ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October"],
    "lost": ["my passport", "the car keys", "a silver earring", "my phone", "the library card", "my umbrella",
             "the camera", "my glasses", "a suitcase", "the house keys"],
    "found": ["under the sofa", "in the freezer", "at the swimming pool", "in a coat I never wear", "on the bus to work",
              "behind the bookshelf", "at the bottom of the laundry basket", "in the glove compartment",
              "at the lost property office", "inside a boot"],
    "charity": ["the animal shelter", "a soup kitchen", "the hospice", "a repair café", "the food bank", "the night bus",
                "a reading club for children", "the mountain rescue"],
    "fear": ["heights", "spiders", "deep water", "flying", "thunder", "lifts", "needles", "the dark", "horses", "crowds"],
    "song": ["an old sea shanty", "a tango", "the national anthem, badly", "a lullaby", "something by Abba",
             "a Bulgarian wedding song", "a jazz standard", "a hymn"],
}

# Each: what is said, a line for each turn, first one then the other; then questions, each with the turn that answers it.
# What stands in braces is drawn once for an exchange. {a} is who begins, {b} who answers.
EXCHANGES = [
    (["How was the trip?", "Lovely! {kin} and I ended up in {city} for the long weekend.",
      "Did the weather hold?", "It poured the first day, then {weather}."],
     [("Where did {b} travel together with {kin_of}?", 1), ("Which town did {b} visit in the company of {kin_of}?", 1)]),
    (["You look happy, what is new?", "We finally adopted {pet}!", "No way. What is it called?",
      "{petname}. The children voted."],
     [("What animal did {b} take in?", 1), ("Which name did the kids pick for the new pet of {b}?", 3),
      ("How do they call {pet_of} in the home of {b}?", 3)]),
    (["Are you still doing {craft} on the side?", "Every week. Last time I managed to finish {made}.",
      "Show me a photo some day."],
     [("What did {b} produce in the {craft} class?", 1), ("What object has {b} completed as a hobby of {craft}?", 1)]),
    (["I am starving. What did you have last night?", "I cooked {dish} from scratch, {kin} had given me the recipe.",
      "I only ever manage pasta."],
     [("Who taught {b} to prepare {dish}?", 1), ("What meal did {b} make following instructions from {kin_of}?", 1)]),
    (["What is that case you are carrying?", "Oh, that. I have taken up {instrument}, lessons on {weekday}.",
      "Your poor neighbours."],
     [("Which musical instrument is {b} learning?", 1), ("When does {b} practise {instrument} with a teacher?", 1)]),
    (["Reading anything good?", "{book_cap}. {kin_cap} lent it to me and I cannot put it down.", "Pass it on when you are done."],
     [("Who gave {b} {book} to borrow?", 1), ("What is {b} reading that belongs to {kin_of}?", 1)]),
    (["Why are you limping about like that?", "I injured {hurt} at {sport}. Six weeks without training now.",
      "Ouch. Did you see somebody about it?", "Yes, the physiotherapist says {physio}."],
     [("How did {b} get hurt on {hurt_of}?", 1), ("Which part of the body did {b} damage while doing {sport}?", 1),
      ("What advice did {b} get from the therapist after the accident at {sport}?", 3)]),
    (["So, did you get it?", "I did! I start at {job} in {month}.", "Congratulations, we have to celebrate."],
     [("Who is the new employer of {b} from {month} on?", 1), ("When does {b} begin to work for {job}?", 1)]),
    (["You sound annoyed.", "{fault_cap} broke down again. The repair came to {cost}.", "That is robbery."],
     [("How much did {b} pay to have {fault} mended?", 1), ("What needed fixing at the place of {b} for {cost}?", 1)]),
    (["How is the garden?", "I put in {plant} this spring, but {pest} got most of them.", "Next year, then."],
     [("What destroyed {plant_of} that {b} grew?", 1), ("What did {b} plant that was ruined by {pest}?", 1)]),
    (["Free this week?", "Not on {weekday}, I have begun a course in {course}.", "You never stop, do you?"],
     [("What is {b} studying in the evenings of {weekday}?", 1), ("On which day does {b} attend the {course} lessons?", 1)]),
    (["We went to the cinema, {film}.", "And, was it any good?", "I {verdict}, to be honest."],
     [("How did {a} react to the movie, {film}?", 2), ("What did {a} think of the picture they watched, {film}?", 2)]),
    (["Shall I bring something for dessert?", "Please nothing with {allergy}, I would end up in hospital.",
      "Good that you say so."],
     [("What must {b} avoid for health reasons?", 1), ("To what is {b} allergic?", 1)]),
    (["Is that yours outside?", "Since Saturday. I bought {vehicle} from {kin}.", "May I try it?"],
     [("From whom did {b} purchase {vehicle}?", 1), ("What means of transport did {b} acquire from {kin_of}?", 1)]),
    (["You have paint on your nose.", "We did {room} all weekend. It is {colour} now.", "Brave."],
     [("Which shade did {b} choose for the walls of {room}?", 1), ("What part of the home did {b} redecorate in {colour}?", 1)]),
    (["What did they give you for your birthday?", "{gift_cap}, from {kin}. I had hinted for months.", "Lucky you."],
     [("What present did {b} receive from {kin_of}?", 1), ("Who gave {b} {gift} as a present?", 1)]),
    (["I have been looking everywhere for {lost}.", "Again? Where was it the last time?",
      "You will not believe it: {found}."],
     [("Where did the {lost_bare} of {a} turn up?", 2), ("In what place did {a} recover the missing {lost_bare}?", 2)]),
    (["What do you do with all your spare time now?", "I help out at {charity} on {weekday}.", "They must be glad to have you."],
     [("Where does {b} volunteer?", 1), ("On what day is {b} busy with unpaid work for {charity}?", 1)]),
    (["Come on, it will be fun.", "I would rather not. I am terrified of {fear}.", "I had no idea, sorry."],
     [("What is {b} afraid of?", 1), ("What phobia keeps {b} from joining in?", 1)]),
    (["How was the wedding of {kin}?", "Loud. They made me sing {song} in front of everybody.", "I would have paid to see that."],
     [("What did {b} perform at the marriage celebration of {kin_of}?", 1)]),
]

EXTRA = {
    "weather": ["blue skies", "a storm took our umbrella", "it snowed, of all things", "it was too hot to walk"],
    "physio": ["cold water and patience", "to swim twice a week", "no stairs for a month", "it will ache when it rains"],
}

SMALL = [
    ["Did you sleep well?", "Like a stone.", "I envy you."],
    ["I am late, the traffic was awful.", "No harm, I have just sat down."],
    ["Have you heard from the others lately?", "Not since the summer. We should call them.", "Let us do that."],
    ["It is getting cold.", "I have the windows shut already."],
    ["What a week.", "Tell me about it.", "I mostly want to sit still now."],
    ["Do you want another coffee?", "Better not, I would lie awake.", "Tea, then."],
    ["My phone is acting up again.", "Turn it off and on.", "As if I had not tried that."],
    ["I read the news and then I regret it.", "I stopped doing that before breakfast."],
    ["The train was full of football fans.", "Were they singing?", "If you can call it that."],
    ["I keep thinking about moving somewhere warmer.", "You say that every winter.", "One day I will."],
    ["Remember our old teacher?", "With the bicycle bell? Of course.", "I saw him at the market, he has not changed."],
    ["I should go to bed earlier.", "We both should."],
    ["Thanks for listening the other day.", "Always. You would do the same."],
    ["Prices at the market are mad.", "I only buy what is in season now."],
    ["My back hurts from all the sitting.", "Get up once an hour, they say.", "They say a lot."],
    ["Shall we meet at the usual place next time?", "Fine with me, same hour."],
]


def other_person(kin):
    """Of what is said in the first person, as somebody else asks about it."""
    for own, other in (("my ", "their "), ("an ", "the "), ("a ", "the "), ("two ", "the ")):
        if kin.startswith(own):
            return other + kin[len(own):]
    return kin


def fill(exchange, dice, unused, a, b):
    """What is said, and what may be asked: text, what it is about, and which of the lines answers it."""
    turns, questions = exchange
    slots = {"a": a, "b": b}
    text = " ".join(turns)
    for pool, values in list(POOLS.items()) + list(EXTRA.items()):
        if "{" + pool + "}" in text or "{" + pool + "_cap}" in text:
            left = unused.setdefault((b, turns[1], pool), [])
            if not left:
                left.extend(dice.sample(values, len(values)))
            value = left.pop()
            slots[pool] = value
            slots[pool + "_cap"] = value[0].upper() + value[1:]
            slots[pool + "_of"] = other_person(value)
            slots[pool + "_bare"] = value.split(" ", 1)[-1]
    asked = []
    for question, at in questions:
        # One that names nothing but the person is about all that they ever said of it.
        names_more = question.replace("{a}", "").replace("{b}", "").count("{") > 0
        asked_of = question.format(**slots)
        about = asked_of if names_more else (turns[1], at, a if "{a}" in question else b)
        asked.append((asked_of[0].upper() + asked_of[1:], about, at))
    return [turn.format(**slots) for turn in turns], asked


def conversations(count=20, sessions=20, seed=14):
    """Yields conversations in the form that scripts/memory reads."""
    for number in range(count):
        dice = random.Random(f"{seed} {number}")
        pair = dice.sample(NAMES, 2)
        unused, turns, evidence, questions = {}, [], {}, {}
        order = []
        while len(order) < sessions * 4:
            order.extend(dice.sample(range(len(EXCHANGES)), len(EXCHANGES)))
        for session in range(1, sessions + 1):
            mixed = [EXCHANGES[at] for at in order[4 * (session - 1):4 * session]]
            mixed += [(lines, []) for lines in dice.sample(SMALL, 3)]
            dice.shuffle(mixed)
            for part in mixed:
                a, b = dice.sample(pair, 2)
                said, asked = fill(part, dice, unused, a, b) if part[1] else (part[0], [])
                first = len(turns)
                for at, text in enumerate(said):
                    speaker = (a, b)[at % 2]
                    turns.append({"id": f"s{session}t{len(turns)}", "session": session, "text": f"{speaker}: {text}"})
                for _, about, at in asked:
                    evidence.setdefault(about, []).append(turns[first + at]["id"])
                # One question of each exchange, so that those of one kind are not all about one turn.
                if asked:
                    question, about, _ = dice.choice(asked)
                    questions[question] = about
        asked = [{"text": question, "evidence": evidence[about]} for question, about in questions.items()]
        yield {"conversation": f"talk {number}", "turns": turns, "questions": asked}
