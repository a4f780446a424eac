// The examples. The tutorials in docs/tutorials ask the same questions about the same texts. A test holds the shipped
// model to the right answers, and to being sure of them.

const choice = (name, instructions, options) => ({
  name,
  type: "choice",
  instructions,
  options: Object.entries(options).map(([option, description]) => ({ name: option, description })),
});
const score = (name, instructions, ...levels) => ({
  name,
  type: "score",
  instructions,
  levels: levels.map((label) => ({ label })),
});
const noul = (name, instructions, yes = "", no = "") => ({ name, type: "noul", instructions, yes, no });

export const EXAMPLES = {
  triage: {
    title: "Triage",
    draft: {
      format: "text",
      state: `Subject: Charged twice for order 4471

Hello, I paid for this order on Monday, and on Tuesday the same amount was taken from my account again. My rent is due on Friday, so I need one of the two payments back before then. I have written twice and nobody has answered.

Dana`,
      questions: [
        choice("team", "Which team should handle this message?", {
          billing: "charges, invoices and refunds",
          delivery: "parcels that are late, lost or damaged",
          technical: "errors, bugs and access to the account",
          sales: "questions before a purchase",
        }),
        score("urgency", "How soon does the customer need an answer?", "no hurry", "in the next few days", "today"),
        noul("refund", "Does the customer ask for money back?"),
      ],
    },
  },
  moderation: {
    title: "Moderation",
    draft: {
      format: "text",
      state:
        "Why work for others? I make 400 dollars a day from home with one simple trick. " +
        "Message me on my profile and I will show you how. Only five places left!",
      questions: [
        choice("kind", "What is this comment on a product?", {
          review: "an opinion about the product",
          question: "a question about the product",
          advertising: "an offer or a scheme that has nothing to do with the product",
          abuse: "insults or threats against a person",
        }),
        score(
          "harm",
          "How much harm would publishing it do?",
          "none",
          "a nuisance",
          "it misleads people",
          "it puts lives at risk",
        ),
        noul("spam", "Is this comment spam or a scam?"),
      ],
    },
  },
  routing: {
    title: "Tool routing",
    draft: {
      format: "json",
      state: `{
  "user": "Please move my dentist appointment from Wednesday at 3 to Thursday at 10.",
  "time": "Tuesday, 09:14"
}`,
      questions: [
        choice("tool", "Which tool should the assistant call for the user's message?", {
          calendar: "reads, adds, moves and deletes appointments",
          email: "finds, writes and sends messages",
          weather: "gives the forecast for a place and a day",
          web_search: "looks up facts on the web",
          none: "answers without a tool",
        }),
        noul("changes_something", "Does the user ask to add, move, change or delete something?"),
        score("clarity", "How clear is the request?", "unclear", "one detail is missing", "clear"),
      ],
    },
  },
  reviews: {
    title: "Many reviews",
    draft: {
      format: "many",
      state: [
        "The street below is loud until three in the morning and I hardly slept.",
        "Spotless room, kind people at the desk, the best breakfast of our trip. We loved it.",
        "Dirty sheets and hair in the shower. We left after one night.",
        "Cold coffee, stale bread and no fruit. Breakfast was a disgrace.",
        "A lovely room with a view of the lake. Perfect.",
        "The receptionist was rude to us and rolled her eyes at every question.",
      ].join("\n"),
      questions: [
        choice("complaint", "What is the main complaint of the guest?", {
          noise: "it was too loud",
          cleanliness: "it was dirty",
          staff: "people were unfriendly",
          food: "meals were bad",
          none: "the guest has no complaint",
        }),
        noul("happy", "Is the guest happy with the stay?"),
      ],
    },
  },
  new: { title: "Start empty", draft: { format: "text", state: "", questions: [{ name: "answer" }] } },
};
