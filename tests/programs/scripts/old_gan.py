"""A GAN in the style of PyTorch 0.3: Variable, FloatTensor, volatile's heirs, `.data`, size_average, nn.functional.sigmoid."""

import warnings

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

warnings.simplefilter("ignore")
torch.manual_seed(11)
np.random.seed(11)
cuda = True if torch.cuda.is_available() else False
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if cuda else torch.LongTensor


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.label_emb = nn.Embedding(4, 4)

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(12, 16, normalize=False), *block(16, 32), nn.Linear(32, int(np.prod((1, 6, 6)))), nn.Tanh())

    def forward(self, noise, labels):
        img = self.model(torch.cat((self.label_emb(labels), noise), -1))
        return img.view(img.size(0), *(1, 6, 6))


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(nn.Linear(36, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1))

    def forward(self, img):
        return self.model(img.view(img.size(0), -1))


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates, inputs=interpolates, grad_outputs=fake, create_graph=True, retain_graph=True, only_inputs=True
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


generator, discriminator = Generator(), Discriminator()
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=0.005)
optimizer_D = torch.optim.RMSprop(discriminator.parameters(), lr=0.005)
bce = nn.BCEWithLogitsLoss(size_average=True)
for i in range(12):
    imgs = torch.FloatTensor(8, 1, 6, 6).uniform_(-1, 1)
    valid = Variable(Tensor(imgs.size(0), 1).fill_(1.0), requires_grad=False)
    fake = Variable(Tensor(imgs.size(0), 1).fill_(0.0), requires_grad=False)
    real_imgs = Variable(imgs.type(Tensor))
    z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], 8))))
    labels = Variable(LongTensor(np.random.randint(0, 4, 8)))
    gen_imgs = generator(z, labels)
    optimizer_D.zero_grad()
    penalty = compute_gradient_penalty(discriminator, real_imgs.data, gen_imgs.data)
    d_loss = bce(discriminator(real_imgs), valid) + bce(discriminator(gen_imgs.detach()), fake) + 0.1 * penalty
    d_loss.backward()
    optimizer_D.step()
    for p in discriminator.parameters():
        p.data.clamp_(-0.5, 0.5)
    optimizer_G.zero_grad()
    g_loss = bce(discriminator(gen_imgs), valid)
    g_loss.backward()
    optimizer_G.step()
    print("[Batch %d] [D loss: %f] [G loss: %f]" % (i, d_loss.data.item(), g_loss.item()))
print(F.sigmoid(discriminator(real_imgs)).data.cpu().numpy().mean().round(4), real_imgs.type())
print(torch.is_tensor(z), isinstance(z, Variable), z.is_cuda, torch.typename(labels), labels.__class__.__name__)
print(torch.ByteTensor([1, 0]).type(), torch.DoubleTensor(2).zero_(), torch.from_numpy(np.ones(2)).type("torch.FloatTensor").dtype)
