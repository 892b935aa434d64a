#include "relay/questions.h"

namespace tarry::relay {

// While it lives, views say what is asked.
class Questions::QuestionScope {
 public:
  QuestionScope(Questions& questions, std::string_view what) : questions_(questions) {
    const MonoTime mono = questions_.clock_.mono();
    questions_.note_gap(mono);
    set({what, mono});
  }
  ~QuestionScope() {
    const MonoTime mono = questions_.clock_.mono();
    // The time of the answer is not counted as a gap: this thread has waited, and not stood still.
    questions_.seen_at_ = mono;
    set({{}, mono});
  }
  QuestionScope(const QuestionScope&) = delete;
  QuestionScope& operator=(const QuestionScope&) = delete;

 private:
  void set(OpenQuestion asked) {
    const std::lock_guard lock(questions_.guard_);
    questions_.asked_ = asked;
  }

  Questions& questions_;
};

void Questions::note_gap(MonoTime mono) {
  if (seen_at_ != MonoTime{} && mono - seen_at_ > times_.stall) note_standstill(mono);
}

std::optional<Questions::OpenQuestion> Questions::asked() const {
  return asked_.what.empty() ? std::nullopt : std::optional(asked_);
}

// The producers are made under the same transactional ids: that is what settles an open
// transaction.
Result<> Questions::renew() {
  const QuestionScope asking(*this, "to register new producers");
  return cluster_.renew();
}

TransactionResult Questions::transact(const Transaction& transaction) {
  const QuestionScope asking(*this, "to commit a transaction");
  return cluster_.transact(transaction);
}

TransactionResult Questions::send(std::span<const ProducerRecord> records) {
  const QuestionScope asking(*this, "to take records");
  return cluster_.send(records);
}

Result<> Questions::begin_send(std::vector<ProducerRecord> records) {
  const QuestionScope asking(*this, "to take records");
  return cluster_.begin_send(std::move(records));
}

SendResult Questions::end_send() {
  const QuestionScope asking(*this, "to confirm records");
  return cluster_.end_send();
}

Result<> Questions::prepare(std::span<const Source> sources) {
  const QuestionScope asking(*this, "for the topics of a source");
  return cluster_.prepare(sources);
}

Result<> Questions::prepare_target(const std::string& topic, const Source& source) {
  const QuestionScope asking(*this, "for a target topic");
  return cluster_.prepare_target(topic, source);
}

Result<std::vector<CommittedOffset>> Questions::committed(std::span<const Source> sources) {
  const QuestionScope asking(*this, "for the offsets of the group");
  return cluster_.committed(sources);
}

Result<Offset> Questions::source_end(const Source& source) {
  const QuestionScope asking(*this, "for the end of a source");
  return cluster_.source_end(source);
}

Result<std::vector<Offset>> Questions::source_ends(std::span<const Source> sources) {
  const QuestionScope asking(*this, "for the ends of sources");
  return cluster_.source_ends(sources);
}

Result<Offset> Questions::state_end(const Source& source) {
  const QuestionScope asking(*this, "for the end of a state partition");
  return cluster_.state_end(source);
}

Result<Offset> Questions::stable_source_end(const Source& source) {
  const QuestionScope asking(*this, "for the stable end of a source");
  return cluster_.stable_source_end(source);
}

Result<> Questions::settle(const std::string& owner) {
  const QuestionScope asking(*this, "to end the transaction of another member");
  return cluster_.settle(owner);
}

}  // namespace tarry::relay
