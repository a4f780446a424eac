// The four examples. The tutorials in docs/tutorials ask the same questions about the same states.

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
        score("urgency", "How soon does the customer need an answer?", "no hurry", "this week", "today"),
        noul("refund", "Does the customer ask for money back?"),
      ],
    },
  },
  moderation: {
    title: "Moderation",
    draft: {
      format: "text",
      state:
        "Lovely blender, very quiet!! By the way, I make 400 dollars a day from home with this one trick. " +
        "Message me on my profile and I will show you how, only five places left.",
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
          "it endangers people",
        ),
        noul(
          "publish",
          "Should the comment be published?",
          "an honest comment on the product",
          "spam, a scam or abuse",
        ),
      ],
    },
  },
  routing: {
    title: "Tool routing",
    draft: {
      format: "json",
      state: `{
  "user": "Can you move my dentist appointment to Thursday morning?",
  "time": "Tuesday, 09:14",
  "last_tool": "weather"
}`,
      questions: [
        choice("tool", "Which tool should the assistant call for the user's message?", {
          calendar: "reads, adds, moves and deletes appointments",
          email: "finds, writes and sends messages",
          weather: "gives the forecast for a place and a day",
          web_search: "looks up facts on the web",
          none: "answers without a tool",
        }),
        noul("changes_something", "Would doing this change or delete something of the user's?"),
        score("clarity", "How clear is what the user wants?", "unclear", "one detail is missing", "clear"),
      ],
    },
  },
  grading: {
    title: "Grading",
    draft: {
      format: "json",
      state: `{
  "question": "Why does the Moon show phases?",
  "reference": "The Sun always lights half of the Moon. As the Moon moves around the Earth, we see more or less of the lit half.",
  "answer": "The Earth's shadow falls on the Moon and covers more or less of it during the month."
}`,
      questions: [
        score("grade", "How well does the answer agree with the reference?", "wrong", "partly right", "right"),
        choice("mistake", "Which mistake does the answer make?", {
          shadow: "it says that the Earth's shadow causes the phases",
          clouds: "it says that clouds hide the Moon",
          rotation: "it says that the Moon turns a dark side towards us",
          none: "it makes no mistake",
        }),
        noul("needs_teacher", "Should a teacher look at this answer?"),
      ],
    },
  },
};
